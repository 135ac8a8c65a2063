"""What a linked agent tells of itself: no metric without a value, and its broker's version."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from federator.runtime.metrics import AGENT, LINK
from tests.real.plain_agents import Plain, eventually, linked


async def scraped(agent):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(agent.http.rpartition(":")[2]))
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = (await reader.read(-1)).decode()
    writer.close()
    return answer.partition("\r\n\r\n")[2]


async def test_every_metric_has_a_value_and_the_version_of_the_broker_is_told(tmp_path):
    async with Plain(tmp_path) as plain:
        brokers = [await plain.broker() for _ in range(2)]
        agent = await plain.agent(1, brokers[0], brokers[1].url)
        await plain.agent(2, brokers[1], brokers[0].url)
        status = await eventually(agent, linked(2), "linked")
        text = await scraped(agent)

    fed = {s.name: s.labels for f in text_string_to_metric_families(text) for s in f.samples}
    assert {row.name for row in AGENT} - fed.keys() == set()
    assert {row.name for row in LINK} - fed.keys() == set()
    assert all(fed[row.name] == {"neighbour": "2"} for row in LINK)
    assert status["broker"]["version"].startswith("mosquitto version ")

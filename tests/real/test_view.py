"""What a linked agent tells of itself: no metric without a value, and its broker's version."""

import asyncio
import json

from prometheus_client.parser import text_string_to_metric_families

from federator.grid.signing import KeyFolder
from federator.runtime.metrics import AGENT, LINK
from tests.real.plain_agents import Plain, eventually, linked


async def scraped(agent):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(agent.http.rpartition(":")[2]))
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = (await reader.read(-1)).decode()
    writer.close()
    return answer.partition("\r\n\r\n")[2]


def everything(keys, id):
    """The sections of an agent that has all there is to have a metric."""
    keys_section = "".join(f"{key} = {json.dumps(v)}\n" for key, v in keys.section(id).items())
    return {"security": "signed", "more": f"[keys]\n{keys_section}[metrics]\nenabled = true\n"}


async def test_every_metric_has_a_value_and_the_version_of_the_broker_is_told(tmp_path):
    async with Plain(tmp_path) as plain:
        brokers = [await plain.broker() for _ in range(2)]
        keys = KeyFolder(tmp_path / "keys", "fed")
        agent, _ = [
            await plain.agent(id, brokers[id - 1], brokers[2 - id].url, **everything(keys, id))
            for id in (1, 2)
        ]
        status = await eventually(agent, linked(2), "linked")
        text = await scraped(agent)

    families = list(text_string_to_metric_families(text))
    fed = {s.name: s.labels for family in families for s in family.samples}
    told = {f"{f.name}_total" if f.type == "counter" else f.name for f in families}
    assert {row.name for row in AGENT} - told == set()
    assert {row.name for row in LINK} - told == set()
    assert all(fed[row.name] == {"neighbour": "2"} for row in LINK)
    assert fed["federator_build_info"].keys() == {"version", "python"}
    assert fed["federator_agent_info"]["broker"] == "1"
    assert "process_resident_memory_bytes" in fed
    assert status["broker"]["version"].startswith("mosquitto version ")

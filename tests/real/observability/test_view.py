"""What a linked agent tells of itself: no metric without a value or with a name of clients."""

import json

from prometheus_client.parser import text_string_to_metric_families

from federator.runtime.observability.metrics import AGENT, LINK
from lab.grid.processes.agent import KeyFolder
from tests.real.metrics_page import metrics
from tests.real.plain_agents import Plain, eventually, linked
from tests.real.polling import until

NAME = 'hall {} "\\'
"""Of a broker: printable, and nothing that may stand in a label of Prometheus as it is."""


NEIGHBOUR = 'capacity = "2 Mbit/s"\ntransport = "udp-fec"'


def everything(folder, leaves, tls, id):
    """The sections of an agent that has all there is to have a metric: it is a hub, too."""
    sections = {
        "keys": folder.section(id),
        "hub": leaves.section(id),
        "metrics": {"enabled": True},
        "discovery": {"filters": ["a/#"]},
        "topology": {"mode": "auto"},
        "udp": {"listen": "127.0.0.1:0"},
        "direct": {"listen": "127.0.0.1:0"},
        "opentelemetry": {"endpoint": "http://127.0.0.1:9"},
    }
    lines = []
    for name, section in sections.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in section.items())]
    lines += ["[[leaves]]", f"id = {10 + id}"]
    certificate = {"cert_file": str(tls / "client.pem"), "key_file": str(tls / "client.key")}
    links = {"transport": "direct", **certificate}
    named = {"name": NAME.format(id)}
    return {"security": "signed", "broker": named, "links": links, "more": "\n".join(lines)}


async def test_every_metric_has_a_value_and_the_version_of_the_broker_is_told(tmp_path, keys):
    async with Plain(tmp_path) as plain:
        brokers = [await plain.broker() for _ in range(2)]
        folder = KeyFolder(tmp_path / "keys", "fed")
        leaves = KeyFolder(tmp_path / "leaf-keys", "fed.leaves")
        agents = []
        for id, (at, other) in enumerate((brokers, brokers[::-1]), 1):
            named = (other.url, 3 - id, NEIGHBOUR)
            sections = everything(folder, leaves, keys, id)
            agents.append(await plain.agent(id, at, named, **sections))
        agent = agents[0]
        await eventually(agent, linked(2), "linked")
        named = {str(id): NAME.format(id) for id in (1, 2)}
        status = await eventually(agent, lambda told: told["names"] == named, "all are named")

        async def links_have_all():
            text = await metrics(agent.http)
            return all(f"\n{row.name}{{" in text for row in LINK)

        await until(links_have_all, "every metric of a link has a sample")
        text = await metrics(agent.http)

    assert "a/#" not in text
    assert "federator-1-" not in text, "a client id"
    told_at_all = "".join(each.read_text() for each in tmp_path.rglob("metrics/1-*.jsonl"))
    assert f'"name":{json.dumps(named["1"])}' in told_at_all
    families = list(text_string_to_metric_families(text))
    fed = {s.name: s.labels for family in families for s in family.samples}
    told = {f"{f.name}_total" if f.type == "counter" else f.name for f in families}
    assert {row.name for row in AGENT} - told == set()
    assert {row.name for row in LINK} - told == set()
    assert all(fed[row.name] == {"neighbour": "2"} for row in LINK)
    assert fed["federator_build_info"].keys() == {"version", "python"}
    assert fed["federator_agent_info"]["broker"] == "1"
    assert fed["federator_broker_info"] == {"broker": "1", "name": named["1"]}
    assert [each["name"] for each in status["links"]] == [named["2"]]
    assert "process_resident_memory_bytes" in fed
    assert status["broker"]["version"].startswith("mosquitto version ")

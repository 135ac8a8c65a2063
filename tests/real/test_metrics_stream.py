"""The metrics stream of real agents beside real brokers: exact, whole, and to be had again."""

from collections import Counter

import mqtt5
import pytest

from federator.protocol.metric_records import decode
from federator.runtime.mqtt_link import Endpoint, MqttLink
from tests.real.flow import Publisher, Subscriber, running
from tests.real.handler import Handler
from tests.real.plain_agents import Plain, eventually, gets_through, linked
from tests.real.polling import until

METRICS = "[metrics]\nenabled = true\nsegment_age_ms = 1000\nsample = 5\n"


class Reader(Handler):
    """Keeps what comes below ``metrics/``, by the last levels of its topic."""

    def __init__(self, port, *, client_id):
        self.came = {}
        self.link = MqttLink(Endpoint("127.0.0.1", port), self, client_id=client_id)
        self.link.subscribe([mqtt5.TopicFilter("$fed/fed/metrics/#", max_qos=mqtt5.QoS(1))])

    def on_publishes(self, link, chunk, publishes):
        for packet, _, _ in publishes:
            name = packet.topic.removeprefix("$fed/fed/metrics/")
            self.came.setdefault(name, []).append(packet.payload)

    def lines(self, *tables):
        return [line for t in tables for p in self.came.get(t, []) for line in p.splitlines()]


def lines_of(agent):
    """Every line in the whole segments of an agent's spool, in order."""
    folder = agent.state_dir / "metrics"
    files = sorted(folder.glob("*.jsonl"), key=lambda p: int(p.name.split("-")[2]))
    return [line for file in files for line in file.read_bytes().splitlines()]


def records_of(agent, table=None):
    records = [decode(line) for line in lines_of(agent)]
    return [r for r in records if table in (None, type(r).__struct_config__.tag)]


def total(records, name="publications"):
    return sum(getattr(record, name) for record in records)


async def line_of_three(plain):
    """Brokers 1 - 2 - 3, and their agents."""
    brokers = [await plain.broker() for _ in range(3)]
    one, two, three = brokers
    agents = [
        await plain.agent(1, one, two.url, more=METRICS),
        await plain.agent(2, two, one.url, three.url, more=METRICS),
        await plain.agent(3, three, two.url, more=METRICS),
    ]
    await eventually(agents[0], linked(2), "1 has its link")
    await eventually(agents[2], linked(2), "3 has its link")
    return brokers, agents


@pytest.mark.parametrize("qos", [0, 1])
async def test_what_agents_count_is_what_clients_sent_and_got(tmp_path, qos):
    async with Plain(tmp_path) as plain:
        brokers, agents = await line_of_three(plain)
        near = Subscriber(brokers[1].port, "a/#", client_id="near", qos=qos)
        far = Subscriber(brokers[2].port, "a/+", client_id="far", qos=qos)
        source = Publisher(brokers[0].port, "a/b", client_id="source", qos=qos, rate_hz=200)
        async with running(near, far, source):
            await gets_through(source, near, far)
            await until(lambda: source.sent >= 400, "400 publications")
            source.pause()
            await until(lambda: source.sent - 1 in far.came, "the last one arrives")
            await until(lambda: source.sent - 1 in near.came, "the last one arrives")
        for agent in agents:
            await agent.stop()

        came = {1: 0, 2: sum(near.came.values()), 3: sum(far.came.values())}
        delivered = {a: records_of(agent, "deliveries") for a, agent in enumerate(agents, 1)}
        assert {a: total(rows) for a, rows in delivered.items()} == came
        assert {(r.origin, r.hops, r.qos) for r in delivered[3]} == {(1, 2, qos)}
        assert sum(count for r in delivered[3] for _, count in r.delay) == came[3]
        offered, arrived = records_of(agents[0], "offered"), records_of(agents[2], "arrived")
        assert total(r for r in offered if r.filter == "a/+") == came[3]
        assert {r.filter for r in arrived} == {"a/+"}
        assert total(arrived) == came[3]
        links = [r for r in records_of(agents[1], "links") if r.neighbour == 1]
        assert total(links, "publications_in") >= came[3]
        assert sum(r.up for r in links) > 0
        kinds = {r.kind for r in records_of(agents[0], "events")}
        assert kinds >= {"agent_started", "broker_up", "link_up", "agent_stopped"}
        assert total(records_of(agents[0], "agents"), "publications_in") >= came[3]
        hops = [{(r.seq, r.hop) for r in records_of(a, "hops")} for a in agents]
        seqs = [{seq for seq, _ in each} for each in hops]
        assert seqs[2]
        assert seqs[2] <= seqs[1]
        assert seqs[2] <= seqs[0]
        assert {hop for _, hop in hops[0]} == {0}
        assert {hop for _, hop in hops[2]} == {2}
        control = Counter()
        for r in records_of(agents[1], "control"):
            control[r.neighbour, r.direction] += r.messages
        assert set(control) >= {(1, "in"), (1, "out"), (3, "in"), (3, "out")}

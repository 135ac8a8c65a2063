"""The metrics stream of real agents beside real brokers: exact, whole, and to be had again."""

import contextlib
import json
from collections import Counter
from random import Random

import pytest

from federator.errors import LinkError
from federator.protocol.telemetry.records import decode, encode
from federator.protocol.telemetry.replay import Ask, decode_again, decode_head
from tests.protocol.hostile import mutated
from tests.real.client import Client
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import Plain, eventually, gets_through, linked
from tests.real.polling import until
from tests.real.telemetry.collecting import CHECKSUM

METRICS = "[metrics]\nenabled = true\nsegment_age_ms = 1000\nsample = 5\n"


class Reader(Client):
    """Keeps what comes below ``metrics/``, by the last levels of its topic."""

    def __init__(self, port, *, client_id):
        super().__init__(port, client_id, "$fed/fed/metrics/#")
        self.came = {}

    def on_publishes(self, link, chunk, publishes):
        for packet, _, _ in publishes:
            name = packet.topic.removeprefix("$fed/fed/metrics/")
            self.came.setdefault(name, []).append(packet.payload)

    def lines(self, *tables):
        return [line for t in tables for p in self.came.get(t, []) for line in p.splitlines()]


def lines_of(agent):
    """Every line in the whole segments of an agent's spool, in order, as it is told."""
    folder = agent.state_dir / "metrics"
    files = sorted(folder.glob("*.jsonl"), key=lambda p: int(p.name.split("-")[2]))
    lines = [line for file in files for line in file.read_bytes().splitlines()]
    return [CHECKSUM.sub(b"}", line) for line in lines]


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
            assert list((agent.state_dir / "metrics").glob(".*.open")) == [], "all are whole"

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
        flows = [r for r in records_of(agents[0], "flows") if r.flow == "a/# a/+"]
        assert max(r.rate for r in flows) > 0
        assert {(r.planned, r.destinations) for r in flows} == {(0, 0)}
        assert not records_of(agents[1], "flows")
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


class Asker(Reader):
    """Asks for batches again."""

    def ask(self, **fields):
        self.link.publish("$fed/fed/metrics/ask", encode(Ask(**fields)), qos=1)

    def answers(self, to):
        """(header, lines) of each message of an answer."""
        for payload in self.came.get(f"again/{to}", []):
            first, _, rest = payload.partition(b"\n")
            yield decode_again(first), rest

    async def whole(self, to, last):
        """The lines of an answer, once it reaches batch ``last``."""
        await until(
            lambda: any(h.batch_last >= last for h, _ in self.answers(to)), f"{to} is answered"
        )
        return b"".join(lines for _, lines in self.answers(to))

    @property
    def head(self):
        return decode_head(self.came["head"][-1])


async def test_live_and_replayed_batches_are_those_in_the_spool_byte_for_byte(tmp_path):
    async with Plain(tmp_path) as plain:
        broker = await plain.broker()
        agent = await plain.agent(1, broker, more=METRICS)
        await eventually(agent, linked(), "it is ready")
        reader = Asker(broker.port, client_id="reader")
        async with running(reader):
            await until(lambda: reader.came.get("head") and reader.head.last >= 4, "4 batches")
            last = reader.head.last
            spool = reader.head.spool
            reader.ask(spool=spool, first=1, last=last, to="all")
            reader.ask(spool=spool, first=3, last=3, to="third")
            reader.ask(spool=spool, first=10**9, last=10**10, to="later")
            reader.ask(spool="f" * 16, first=1, last=9, to="strange")
            again = await reader.whole("all", last)
            third = await reader.whole("third", 3)
            await until(lambda: {"again/later", "again/strange"} <= set(reader.came), "answers")
            ((later, none),) = reader.answers("later")
            ((strange, nothing),) = reader.answers("strange")
        await agent.stop()

        lines = lines_of(agent)
        upto = [line for line in lines if json.loads(line)["batch"] <= last]
        assert again.splitlines() == upto
        assert third.splitlines() == [n for n in upto if json.loads(n)["batch"] == 3]
        assert (later.batch_last, none) == (10**9 - 1, b"")
        assert later.held_first == 1
        assert (strange.batch_last, strange.held_last, nothing) == (0, 0, b"")
        live = reader.lines("agents", "links", "events", "control", "announcements")
        assert live
        assert set(live) <= set(lines)


async def test_a_killed_agent_goes_on_with_its_spool_and_writes_no_record_twice(tmp_path):
    async with Plain(tmp_path) as plain:
        brokers, agents = await line_of_three(plain)
        victim = agents[2]
        folder = victim.state_dir / "metrics"
        far = Subscriber(brokers[2].port, "a/+", client_id="far", qos=1)
        source = Publisher(brokers[0].port, "a/b", client_id="source", qos=1, rate_hz=100)
        reader = Asker(brokers[2].port, client_id="reader")
        async with running(far, source, reader):
            await gets_through(source, far)
            await until(lambda: reader.came.get("head"), "a head")
            for _ in range(2):
                seen = reader.head.last
                await until(lambda n=seen: reader.head.last >= n + 3, "batches")
                await until(lambda: any(folder.glob(".*.open")), "a segment is being written")
                victim.kill9()
                told = set(reader.lines("deliveries", "agents"))
                with next(folder.glob(".*.open"), folder / "none").open("ab") as torn:
                    torn.write(b'{"v":1,"table":"agents","torn')
                await victim.start()
                await eventually(victim, linked(2), "it is back")
                first = reader.head.last
                await until(lambda n=first: reader.head.last > n + 1, "it writes on")
                assert told <= set(reader.lines("deliveries", "agents"))
            source.pause()
            await until(lambda: source.sent - 1 in far.came, "the last one arrives")
        for agent in agents:
            await agent.stop()

        records = records_of(victim)
        keys = [(r.spool, r.batch, r.row) for r in records]
        assert len(set(keys)) == len(keys)
        assert keys == sorted(keys)
        assert len({spool for spool, _, _ in keys}) == 1
        assert len({r.epoch for r in records}) == 3
        counted = total(r for r in records if type(r).__name__ == "Deliveries")
        came = sum(far.came.values())
        assert counted <= came
        assert counted >= came - 2 * 200  # a second's worth each time, on a slow machine
        lines = set(lines_of(victim))
        assert set(reader.lines("deliveries", "agents")) <= lines
        torn = [r for r in records_of(victim, "events") if r.kind == "spool_torn"]
        assert len(torn) >= 1


async def test_ten_thousand_mutated_asks_leave_the_agent_as_it_was(tmp_path):
    async with Plain(tmp_path) as plain:
        broker = await plain.broker()
        agent = await plain.agent(1, broker, more=METRICS)
        await eventually(agent, linked(), "it is ready")
        reader, rng = Asker(broker.port, client_id="reader"), Random(7)
        async with running(reader):
            await until(lambda: reader.came.get("head") and reader.head.last >= 2, "batches")
            good = encode(Ask(spool=reader.head.spool, first=1, last=2, to="x"))
            for _ in range(10_000):
                await until(lambda: reader.link.unacknowledged < 500, "the broker keeps up")
                reader.link.publish("$fed/fed/metrics/ask", mutated(rng, good), qos=1)
            await until(lambda: not reader.link.unacknowledged, "all are taken")
            reader.came.clear()
            await until(lambda: reader.came.get("head"), "the agent writes on")
            await _ask_until_answered(reader)
        status = await agent.status()
        await agent.stop()

        assert status["ready"]
        assert "metrics.ask_malformed" in agent.log_path.read_text()


async def _ask_until_answered(reader):
    """The queue may still be full of asks that made sense."""
    while "again/mine" not in reader.came:
        reader.ask(spool=reader.head.spool, first=1, last=1, to="mine")
        with contextlib.suppress(LinkError):
            await until(lambda: "again/mine" in reader.came, "an answer", deadline_s=0.5)

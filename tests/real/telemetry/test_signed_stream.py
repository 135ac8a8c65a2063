"""The metrics stream of a signed federation, on brokers without an ACL: who is told, who believed.

The attacker may write and read all of ``$fed/#``. docs/security.md, "Roles".
"""

import asyncio
import json
from functools import partial

import pytest

from federator.protocol.telemetry.records import encode
from federator.protocol.telemetry.replay import Again, Ask, Head, decode_ask, decode_head
from federator.protocol.trust.words import NOBODY, at
from tests.collector.world import line
from tests.real.agent_log import named
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until
from tests.real.telemetry.test_collect import (
    FILES,
    QUICK,
    assert_landed_as_spooled,
    caught_up,
    collecting,
    newest,
)
from tests.real.trust.test_roles import REQUIRED, Recorder, forgeries
from tests.real.trust.test_signed import Office, keys, refusals
from tests.real.undisturbed import undisturbed

OF_COLLECTOR = ("--role", "collector", "--name", "c")
ASK = "$fed/fed/metrics/ask"
FORGED_HEAD = Head(broker=1, spool="f" * 16, first=1, last=10**9, at_us=1)


@pytest.fixture
def office(tmp_path):
    return Office(tmp_path / "office")


async def pair(plain, office):
    """Brokers 1 - 2 and their signed agents, each with a metrics stream."""
    brokers = [await plain.broker() for _ in range(2)]
    for id_, broker in enumerate(brokers, 1):
        section = office.section(id_) + REQUIRED + "\n" + QUICK
        neighbours = [each.url for each in brokers[: id_ - 1]]
        await plain.agent(id_, broker, *neighbours, security="signed", more=section)
    await eventually(plain.agents[0], linked(2), "linked")
    return brokers


def reading(tmp_path, office, broker):
    """A collector with a key of its own."""
    keys("issue", "--dir", office.folder, *OF_COLLECTOR)
    own, public = (
        json.dumps(str(office.folder / n)) for n in ("collector-c.key", "federation.pub")
    )
    sections = f"[keys]\ncollector_file = {own}\nfederation_files = [{public}]\n"
    return collecting(tmp_path / "collector", broker.url, sections=FILES + sections)


class Forger(Recorder):
    """Hears who asks for what, and answers in the agent's place, always with the same lines."""

    def __init__(self, port):
        self.answers = 0
        super().__init__(port)

    def on_publishes(self, link, chunk, publishes):
        for packet, _, _ in publishes:
            if packet.topic == ASK:
                self._answer(decode_ask(bytes(packet.payload)))
        super().on_publishes(link, chunk, publishes)

    def _answer(self, ask):
        held = {"batch_first": ask.first, "batch_last": ask.last, "held_first": 1}
        first = encode(Again(spool=ask.spool, **held, held_last=ask.last))
        forged = b"".join(line(1, ask.spool, n, 0) for n in range(ask.first, ask.last + 1))
        self.answers += self.say(f"metrics/again/{ask.to}", first + b"\n" + forged)


@pytest.mark.usefixtures("turns_told")
async def test_agents_answer_a_collector_with_a_key_and_nobody_else(plain, office, tmp_path):
    brokers = await pair(plain, office)
    recorders = [Recorder(broker.port) for broker in brokers]
    subscriber = Subscriber(brokers[1].port, "plant/#", client_id="reader", qos=1)
    publisher = Publisher(brokers[0].port, "plant/7", client_id="writer", qos=1)
    async with running(subscriber, publisher, *recorders):
        await gets_through(publisher, subscriber)
        await until(lambda: recorders[0].of("head"), "a head")
        spool = decode_head(recorders[0].of("head")[-1][1]).spool
        mine = Ask(spool=spool, first=1, last=1, to="mine")
        recorders[0].say("metrics/ask", encode(mine))
        await until(lambda: refusals(plain.agents[0], "without its signature"), "it is refused")
        async with reading(tmp_path, office, brokers[0]) as collector:
            await caught_up(collector, newest(plain.agents))
            ask = await recorded_asks_are_refused(recorders, plain.agents)
            processes = (*plain.agents, collector)
            asks = forgeries("metrics/ask", mine, ask, to=at(1))
            words = to_a_collector(recorders[0], decode_ask(ask).to)
            for row, forged, victim in (
                ("12 asks", asks, plain.agents[0]),
                ("12 heads, answers", words, collector),
            ):
                await is_flooded(
                    row, recorders[0], forged, victim, publisher, subscriber, processes
                )
            fresh = office.folder / "fresh.key"
            keys("issue", "--dir", office.folder, *OF_COLLECTOR, "--out", fresh)
            fresh.replace(office.folder / "collector-c.key")
            await until(lambda: named(collector, "trust.certificate_changed"), "it has another key")
            ends = newest(plain.agents)
            await caught_up(collector, ends)

            assert not recorders[0].of("mine")
            assert_landed_as_spooled(collector, plain.agents, ends)


async def recorded_asks_are_refused(recorders, agents):
    """Where the ask was heard, and elsewhere; returns it."""
    _, ask = next(each for each in recorders[0].of("ask") if b"proof" in each[1])
    whys = ("a word of collector c came before", "a word of collector c is for another")
    for recorder, agent, why in zip(recorders, agents, whys, strict=True):
        recorder.say("metrics/ask", ask)
        await until(lambda a=agent, w=why: refusals(a, w), why)
    return ask


def to_a_collector(recorder, token):
    """Heads and answers in the name of agent 1, but for their signatures."""
    _, genuine = recorder.of("head")[-1]
    yield from forgeries("metrics/head", FORGED_HEAD, genuine, to=NOBODY)
    yield from forgeries(f"metrics/again/{token}", FORGED_HEAD, genuine, to=NOBODY)


async def is_flooded(row, forger, forged, victim, publisher, subscriber, processes):
    """What is forged is refused, and honest traffic does not feel it."""
    before = len(refusals(victim, "is wrong"))
    async with undisturbed(row, publisher, subscriber, processes=processes):
        for topic, payload in forged:
            await until(partial(forger.link.publish, topic, payload), "there is room")
            await asyncio.sleep(0)
        await until(lambda: len(refusals(victim, "is wrong")) > before, "they are refused")
        await gets_through(publisher, subscriber)


async def test_a_collector_with_keys_believes_no_forged_head_or_answer(plain, office, tmp_path):
    brokers = await pair(plain, office)
    forger = Forger(brokers[0].port)
    async with running(forger), reading(tmp_path, office, brokers[0]) as collector:
        await until(lambda: forger.link.subscribed, "who forges hears")
        for _ in range(10):
            await forger.put("metrics/head", encode(FORGED_HEAD))
            await caught_up(collector, newest(plain.agents))
        await until(lambda: forger.answers > 10, "answers are forged")
        ends = newest(plain.agents)
        await caught_up(collector, ends)
        spools = {each["spool"] for each in (await collector.status())["spools"]}
        counters = (await collector.status())["counters"]

        assert spools == {spool for _, spool in ends}
        assert_landed_as_spooled(collector, plain.agents, ends)
        assert counters["refused"] >= 20
        assert refusals(collector, "a word of agent 1 without its signature")

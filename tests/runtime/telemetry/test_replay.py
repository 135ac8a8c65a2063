"""Asks for batches: whom an agent believes, and who gets a place where many ask."""

import asyncio

import mqtt5
import pytest
from mqtt5 import PublishPacket

from federator.errors import DecodeError
from federator.protocol.telemetry.reader import read_again
from federator.protocol.telemetry.records import encode
from federator.protocol.telemetry.replay import Ask, decode_head
from federator.protocol.trust.authority import Authority
from federator.protocol.trust.words import at
from federator.runtime.process.clocks import wall_clock_us
from federator.runtime.telemetry import replay
from federator.runtime.telemetry.replay import ASKS_MAX, JUDGED_MAX, WINDOW_MS, ReplayService
from federator.runtime.trust.crypto import verify
from federator.runtime.trust.key_maker import KeyMaker
from federator.runtime.trust.words import SignedWords, vouch_by
from tests.real.polling import until

ASK, SPOOL = "$fed/fed/metrics/ask", "0123456789abcdef"


class Link:
    """The control connection: what is published there."""

    connected, unacknowledged = True, 0

    def __init__(self):
        self.published = []

    def publish_packet(self, packet, packet_id_at, qos):
        self.published.append(mqtt5.read(memoryview(bytes(packet)))[0])
        return True


class World:
    """The agent of broker 1, and who reads what it has."""

    def __init__(self, *required, keys=True):
        self.maker = KeyMaker.new("fed")
        self.authority = Authority("fed", [self.maker.public.key], verify)
        self.link = Link()
        words = SignedWords(None)
        if keys:
            words = SignedWords(self.authority, vouch=self.vouch("agent"), required=required)
        self.agent = ReplayService(
            link=self.link, federation="fed", broker=1, tables=True, read=self.read, words=words
        )

    def vouch(self, role, name=""):
        now_s = wall_clock_us() // 1_000_000
        keys, _ = self.maker.issue(1, days=1, now_s=now_s, role=role, name=name)
        return vouch_by(keys)

    def signed(self, token, *, role="collector", broker=1):
        """An ask under a key of that role, for who is at ``broker``."""
        words = SignedWords(self.authority, vouch=self.vouch(role, "r"))
        return words.sign(ASK, ask_to(token), to=at(broker))

    def hears(self, *payloads):
        for payload in payloads:
            self.agent.on_ask(PublishPacket(ASK, payload))

    async def read(self, spool, first, last, bytes_max):
        return None, (1, 0)

    async def answers(self):
        """To whom all answers go that are due."""
        task = asyncio.create_task(self.agent.run())
        await until(lambda: not self.agent._orders, "all are answered")
        task.cancel()
        return [packet.topic.rpartition("/")[2] for packet in self.link.published]


def ask_to(token):
    return encode(Ask(spool=SPOOL, first=1, last=2, to=token))


def forged(token):
    return ask_to(token)[:-1] + b',"proof":"none"}'


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Stands until it is set; and nobody waits between two answers."""
    told = {"ms": 0}
    monkeypatch.setattr(replay, "monotonic_ms", lambda: told["ms"])
    monkeypatch.setattr(replay, "PAUSE_S", 0)
    return told


async def test_where_a_key_is_required_only_a_collectors_ask_is_answered_and_once():
    world = World("collector")
    other_run, good, later = (world.signed(run) for run in ("other", "good", "good"))
    elsewhere = world.signed("elsewhere", broker=2)

    world.hears(ask_to("unsigned"), forged("forged"), elsewhere)
    world.hears(world.signed("gate", role="gateway"), World().signed("stranger"))
    world.hears(good, good, later, good, other_run)

    assert await world.answers() == ["good", "good", "other"]
    assert world.agent.words.refused["metrics"] == 7


async def test_a_signed_ask_has_its_place_however_many_others_wait():
    world = World()
    crowd = [ask_to(f"crowd-{number}") for number in range(2 * ASKS_MAX)]

    world.hears(*crowd, world.signed("good"), *crowd)

    assert world.agent.refused == ASKS_MAX
    assert await world.answers() == ["good"]


async def test_collectors_fill_the_queue_for_each_other_and_then_nothing_is_judged(monkeypatch):
    world = World()
    world.hears(*[world.signed(f"{number}") for number in range(ASKS_MAX)])
    monkeypatch.setattr(world.agent.words, "believes", None)

    world.hears(world.signed("late"))

    assert world.agent.refused == 1
    assert len(await world.answers()) == ASKS_MAX


async def test_forged_asks_are_judged_so_many_in_a_window_and_then_an_honest_one_is(clock):
    world = World()
    good = world.signed("good")

    world.hears(*[forged("f")] * 1_000, good, ask_to("unsigned"))
    assert world.agent.words.refused["metrics"] == JUDGED_MAX
    assert world.agent.refused == 1_001 - JUDGED_MAX
    clock["ms"] += WINDOW_MS
    world.hears(good, *[forged("f")] * 1_000)

    assert await world.answers() == ["good"]


@pytest.mark.parametrize("keys", [False, True])
async def test_without_a_key_asks_are_answered_in_an_open_federation_and_where_none_is_required(
    keys,
):
    world = World(keys=keys)

    world.hears(ask_to("a"), *([] if keys else [forged("b")]))

    assert await world.answers() == (["a"] if keys else ["a", "b"])


async def test_heads_and_answers_bear_the_agents_proof_and_its_digest():
    world = World()
    world.agent.push([], SPOOL, (1, 2), 3)
    world.hears(ask_to("t"))
    await world.answers()
    head, answer = world.link.published
    judge = SignedWords(world.authority, required=["agent"])
    first, _, rest = answer.payload.partition(b"\n")

    assert decode_head(head.payload).last == 2
    assert judge.is_agents(1, head.topic, head.payload, again=True)
    assert judge.is_agents(1, head.topic, head.payload, again=True), "a retained one comes again"
    assert judge.is_agents(1, answer.topic, first)
    assert not judge.is_agents(1, answer.topic, first)
    assert not judge.is_agents(1, answer.topic.replace("/t", "/u"), first)
    assert not SignedWords(world.authority).is_agents(2, head.topic, head.payload)
    with pytest.raises(DecodeError):
        read_again(answer.payload + b"more")
    assert read_again(answer.payload)[1] == rest == b""

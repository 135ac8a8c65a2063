"""What the watch does with what the broker says of bridges, and with publications."""

import asyncio

import mqtt5
import pytest
from mqtt5 import PublishPacket, QoS

from federator.config.topics import LoopSettings
from federator.protocol.loops import turns as loop_turns
from federator.runtime.loops import watch as loop_watch
from federator.runtime.loops.watch import LoopWatch
from tests.real.polling import until

DATA = "$fed/fed/data"
STATE = "$SYS/broker/connection/vm.forgotten/state"


def told(topic, payload):
    return PublishPacket(topic, payload)


class Beside:
    """A watch and what it passes on; ``loops`` says whether that comes back."""

    def __init__(self, *, loops=True, **settings):
        self.watch = LoopWatch(LoopSettings(**settings), data_topic=DATA, pass_on=self._pass_on)
        self.loops = loops
        self.passed = []

    def publish(self, *wires):
        chunk, publishes = memoryview(b"".join(wires)), []
        at = 0
        while at < len(chunk):
            packet, size = mqtt5.read(chunk[at:])
            publishes.append((packet, at, at + size))
            at += size
        if self.watch.looks():
            chunk, publishes = self.watch.sift(chunk, publishes)
        self._pass_on(chunk, publishes)

    def _pass_on(self, chunk, publishes):
        for packet, start, end in publishes:
            wire = bytes(chunk[start:end])
            assert mqtt5.read(memoryview(wire))[0].topic == packet.topic
            self.passed.append(packet.topic)
            if self.loops:
                asyncio.get_running_loop().call_later(0.002, self.publish, wire)


@pytest.mark.parametrize(
    ("topic", "came", "went"),
    [
        (STATE, b"1", b"0"),
        (
            "$SYS/broker/log/N",
            b"1700000000: New bridge connected from 10.0.0.7:4711 as vm.forgotten (p2, c0, k60).",
            b"1700000000: Client vm.forgotten disconnected.",
        ),
        (
            "$SYS/broker/log/N",
            b"New bridge connected from 10.0.0.7:4711 as vm.forgotten (p4, c1, k60, u'b').",
            b"Client vm.forgotten [10.0.0.7:4711] disconnected: connection closed by client.",
        ),
    ],
)
async def test_a_bridge_comes_and_goes_with_what_the_broker_says(topic, came, went):
    watch = Beside().watch
    assert not watch.watching

    watch.on_publish(told(topic, came))
    assert watch.watching
    assert [name.partition(" ")[0] for name in watch.named_bridges()] == ["vm.forgotten"]

    watch.on_publish(told(topic, went))
    assert not watch.watching
    assert watch.named_bridges() == []


async def test_where_a_bridge_comes_from_is_told_when_it_is_known():
    watch = Beside().watch
    watch.on_publish(told(STATE, b"1"))
    line = b"New bridge connected from 10.0.0.7:4711 as vm.forgotten (p2, c0, k60)."
    watch.on_publish(told("$SYS/broker/log/N", line))

    assert watch.named_bridges() == ["vm.forgotten from 10.0.0.7"]


async def test_other_clients_are_no_bridges():
    watch = Beside().watch
    for line in (
        b"New client connected from 10.0.0.7:4711 as x (p2, c0, k60).",
        b"Client New bridge connected from y disconnected.",
        b"\xff\xfe",
    ):
        watch.on_publish(told("$SYS/broker/log/N", line))

    assert not watch.watching


async def test_a_broker_that_forgot_us_is_asked_anew_for_its_bridges():
    watch = Beside().watch
    watch.on_publish(told(STATE, b"1"))

    watch.on_new_session()

    assert not watch.watching


async def test_an_agent_that_says_its_link_is_up_is_no_bridge():
    watch = Beside().watch
    watch.on_publish(told("$SYS/broker/connection/federator-2/state", b"1"))

    assert not watch.watching


async def test_bridges_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(loop_watch, "BRIDGES_MAX", 3)
    watch = Beside().watch
    for number in range(9):
        watch.on_publish(told(f"$SYS/broker/connection/b{number}/state", b"1"))

    assert len(watch.bridges) == 3


async def test_never_means_never():
    watch = Beside(watch="never").watch
    watch.on_publish(told(STATE, b"1"))

    assert not watch.watching
    assert watch.subscriptions() == []


async def test_a_loop_is_found_broken_and_over_when_the_bridge_goes():
    beside = Beside()
    beside.watch.on_publish(told(STATE, b"1"))

    beside.publish(PublishPacket("t", b"m").write(), PublishPacket("u", b"m").write())
    await until(lambda: beside.watch.detector.loop_count == 2, "both loops are found")
    await until(lambda: beside.watch.detector.dropped == 2, "what went round is stopped")
    beside.passed.clear()
    for number in range(20):
        beside.publish(PublishPacket("t", b"%d" % number, qos=QoS(1), packet_id=7).write())
    await until(lambda: beside.watch.detector.dropped == 22, "each came back and was stopped")

    assert beside.passed == ["t"] * 20
    beside.loops = False
    beside.watch.on_publish(told(STATE, b"0"))
    assert beside.watch.detector.loop_count == 0


async def test_frames_are_never_held_or_dropped():
    beside = Beside(watch="always", loops=False)
    for _ in range(200):
        beside.publish(PublishPacket(DATA, b"frame").write())

    assert beside.passed == [DATA] * 200
    assert beside.watch.detector.suspects == 0


async def test_a_repeating_client_is_held_for_a_while_and_loses_nothing():
    beside = Beside(watch="always", loops=False)
    sent = 0
    while beside.watch.held_bytes == 0:
        beside.publish(PublishPacket("t", b"21.5").write())
        sent += 1
        await asyncio.sleep(0.001)
    await until(lambda: len(beside.passed) == sent, "what was held goes on")

    assert beside.watch.detector.loop_count == 0


async def test_no_more_is_held_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(loop_watch, "HELD_BYTES_MAX", 1_000)
    beside = Beside(watch="always", loops=False)
    while beside.watch.held_bytes == 0:
        beside.publish(PublishPacket("t", b"21.5").write())
        await asyncio.sleep(0.001)
    before = len(beside.passed)

    beside.publish(PublishPacket("t", bytes(2_000)).write())

    assert beside.watch.held_bytes == 0
    assert len(beside.passed) > before


async def test_what_is_held_when_the_agent_leaves_goes_on():
    beside = Beside(watch="always", loops=False)
    while beside.watch.held_bytes == 0:
        beside.publish(PublishPacket("t", b"21.5").write())
        await asyncio.sleep(0.001)
    before = len(beside.passed)

    beside.watch.stop()

    assert len(beside.passed) == before + 1


async def test_what_is_delivered_here_is_expected_back_on_a_looping_topic():
    beside = Beside()
    beside.watch.on_publish(told(STATE, b"1"))
    beside.publish(PublishPacket("t", b"m").write())
    await until(lambda: beside.watch.detector.loop_count == 1, "the loop is found")
    beside.passed.clear()

    wire = PublishPacket("t", b"delivered", qos=QoS(1), packet_id=3).write()
    beside.watch.note(wire)
    beside.publish(wire)

    assert beside.passed == []


@pytest.fixture
def always_a_glance(monkeypatch):
    monkeypatch.setattr(loop_turns, "GLANCE_MS", loop_turns.GLANCE_EVERY_MS)


@pytest.mark.usefixtures("always_a_glance")
async def test_where_no_bridge_is_known_what_comes_in_and_is_delivered_by_turns_is_a_loop():
    beside = Beside()
    wire = PublishPacket("t", b"m").write()
    passed = beside.watch.pass_on

    def delivered_elsewhere_and_back(chunk, publishes):
        beside.watch.note(wire)  # the copy that goes round the other way
        passed(chunk, publishes)

    beside.watch.pass_on = beside._pass_on = delivered_elsewhere_and_back
    beside.publish(wire)

    await until(lambda: beside.watch.detector.loop_count == 1, "the loop is found")
    await until(lambda: beside.watch.detector.dropped > 0, "its copies are stopped")

    assert not beside.watch.watching
    assert beside.watch.named_bridges() == []


@pytest.mark.usefixtures("always_a_glance")
async def test_where_no_bridge_is_known_equal_publications_are_never_held_however_they_come():
    """As of a client that publishes the same again each time that all of it has crossed."""
    beside = Beside()
    wires = [PublishPacket(f"t/{number}", b"1").write() for number in range(50)]

    beside.publish(*wires)
    await until(lambda: len(beside.passed) >= 5_000, "all pass")

    assert beside.watch.detector.suspects == beside.watch.detector.loop_count == 0
    assert beside.watch.held_bytes == 0


@pytest.mark.usefixtures("always_a_glance")
async def test_where_no_bridge_is_known_clients_of_both_sides_that_say_the_same_lose_nothing():
    beside = Beside(loops=False)
    wire = PublishPacket("t", b"on").write()

    for _ in range(200):
        beside.publish(wire)
        beside.watch.note(wire)
        await asyncio.sleep(0.005)

    assert "t" in beside.watch._turns
    await until(lambda: len(beside.passed) == 200, "all pass")
    assert beside.watch.detector.loop_count == 0

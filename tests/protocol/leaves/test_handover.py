"""While one agent follows another at its broker, each publication is carried by one of the two."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.forwarding.publications import packets_in
from federator.protocol.leaves.handover import BROUGHT_LATER_MS, LATER_MS, Handover
from federator.protocol.leaves.twins import TWINS_MAX
from federator.runtime.mqtt.wire import inbound_of
from tests.protocol.leaves.test_stamps import FAR, NOW, Two, frame, payloads, run_of

SWITCH = "switch"


def play(contents, steps, handover, hear):
    """Let each of the two hear all of ``contents`` in order, and hand over, as ``steps`` say."""
    unheard = {name: list(contents) for name in ("former", "successor")}

    def hear_next(name):
        if unheard[name]:
            hear(name, unheard[name].pop(0))

    for step in steps:
        if step == SWITCH:
            handover.is_done = True
        else:
            hear_next(step)
    for name in unheard:
        while unheard[name]:
            hear_next(name)


@given(
    contents=st.lists(st.integers(0, 2), max_size=30),
    steps=st.lists(st.sampled_from(["former", "successor", SWITCH]), max_size=80),
)
def test_as_many_are_taken_as_were_published_whoever_hears_them_when(contents, steps):
    handover = Handover()
    turns = {"former": handover.former, "successor": handover.successor}
    taken = Counter()

    def hear(name, mark):
        taken[mark] += turns[name].takes(mark, NOW)

    play(contents, steps, handover, hear)

    assert taken == Counter(contents)


def test_what_one_of_them_never_hears_is_forgotten_in_time():
    handover = Handover()
    assert handover.former.takes(7, NOW)  # the successor does not subscribe it yet
    handover.is_done = True
    assert not handover.former.takes(7, NOW + 1)

    assert handover.successor.takes(7, NOW + 2)  # the later one of the two
    assert handover.successor.takes(7, NOW + LATER_MS + 3)  # the first would be the former's


def test_what_waits_is_bounded():
    handover = Handover()
    for mark in range(TWINS_MAX + 5):
        handover.former.takes(mark, NOW)
    handover.is_done = True

    assert handover.successor.takes(0, NOW)
    assert not handover.successor.takes(TWINS_MAX, NOW)


@given(
    contents=st.lists(st.sampled_from([b"a", b"b"]), max_size=20),
    steps=st.lists(st.sampled_from(["former", "successor", SWITCH]), max_size=60),
)
def test_at_qos_0_one_of_them_brings_it_whichever_it_reaches_first(contents, steps):
    two = Two()
    brought = Counter()

    def bring(name, content):
        run = run_of(content, qos=0)
        stamps = getattr(two, name)
        brought.update(payloads(stamps.arriving(frame(FAR, 1, qos=0), run, now_ms=NOW)))

    play(contents, steps, two.handover, bring)

    assert brought == Counter(contents)


def test_at_qos_0_what_came_by_one_way_alone_is_forgotten_soon():
    two = Two()
    run = run_of(b"x", qos=0)
    two.former.arriving(frame(FAR, 1, qos=0), run, now_ms=NOW)
    two.handover.is_done = True
    later = NOW + BROUGHT_LATER_MS + 1

    assert two.successor.arriving(frame(FAR, 2, qos=0), run, now_ms=later)
    assert not two.former.arriving(frame(FAR, 2, qos=0), run, now_ms=later)


def test_a_client_cannot_seal():
    two = Two()
    forged = run_of(b"x", properties=[("federator-stamp", "AAAA"), ("mine", "kept")])
    chunk, _ = two.former.leaving(
        memoryview(forged), inbound_of(memoryview(forged)), but="", now_ms=NOW
    )
    (packet,) = packets_in(bytes(chunk))
    assert packet.user_properties == [("mine", "kept")]

"""Bundles: what is packed is unpacked, what is no bundle is refused in one way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import DecodeError
from federator.protocol.forwarding.bundles import (
    RUN_MAX,
    frames_of,
    in_order,
    pack_bundle,
    runs_of,
    unpack_bundle,
)
from federator.protocol.forwarding.frames import CUSTODY_FLAG, KEY_BYTES, pack
from lab.sim.data import packet_of
from tests.protocol.frames import made_frame

PACKET = packet_of("a", 1, 0)


def frame(seq, count, *, flags=0, origin=1, body=None):
    body, chain = PACKET * count if body is None else body, bytes(8) if flags else b""
    numbers = {"origin": origin, "sender": 2, "epoch": 3, "seq": seq, "origin_time_us": 4}
    keys = (5).to_bytes(KEY_BYTES, "big")
    return made_frame(flags=flags, publications=count, keys=keys, body=body, chain=chain, **numbers)


def packed(frames, runs):
    pieces = [((wire,), len(wire)) for wire in map(pack, frames)]
    return b"".join(pack_bundle(pieces, runs))


@st.composite
def bundles(draw):
    runs = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=2, max_size=20))
    used = sorted({index for index, _ in runs})
    runs = [(used.index(index), count) for index, count in runs]
    counts = [sum(n for index, n in runs if index == at) for at in range(len(used))]
    frames = [
        frame(seq, count, flags=draw(st.sampled_from((0, CUSTODY_FLAG))))
        for seq, count in enumerate(counts, 1)
    ]
    return frames, runs


@given(bundles())
def test_what_is_packed_is_unpacked(bundle):
    frames, runs = bundle
    if len(frames) < 2:
        return

    found = unpack_bundle(packed(frames, runs))

    assert [pack(each) for each, _ in found] == [pack(each) for each in frames]
    assert [size for _, size in found] == [len(pack(each)) for each in frames]
    assert joined(runs_of([each for each, _ in found])) == joined(runs)


def joined(runs):
    """Neighbouring runs of one frame as one."""
    found = []
    for index, count in runs:
        if found and found[-1][0] == index:
            count += found.pop()[1]
        found.append((index, count))
    return found


def test_a_run_longer_than_a_number_can_tell_is_several():
    bodies = [frame(1, RUN_MAX + 2), frame(2, 1)]
    runs = [(0, RUN_MAX + 1), (1, 1), (0, 1)]

    found = unpack_bundle(packed(bodies, runs))

    assert joined(runs_of([each for each, _ in found])) == runs


def test_the_order_of_some_of_the_frames_is_that_of_the_rest():
    frames = [frame(1, 2), frame(2, 2), frame(3, 1)]
    give_order(frames, [(0, 1), (1, 1), (2, 1), (0, 1), (1, 1)])

    assert runs_of([frames[0], frames[2]]) == [(0, 1), (1, 1), (0, 1)]
    assert runs_of([frames[2], frames[1]]) == [(1, 1), (0, 1), (1, 1)]


def test_a_frame_that_lost_packets_on_its_way_is_one_run_where_it_began():
    frames = [frame(1, 3), frame(2, 2)]
    give_order(frames, [(0, 1), (1, 1), (0, 2), (1, 1)])
    frames[0].publications = 2

    assert runs_of(frames) == [(0, 2), (1, 2)]


def give_order(frames, runs):
    for place, each in enumerate(frames):
        each.place, each.order = place, runs


def test_packets_come_in_the_order_of_the_runs():
    bodies = [b"".join(packet_of(topic, n, 0) for n in (1, 2)) for topic in ("a", "b")]

    found = list(in_order(list(map(memoryview, bodies)), [(1, 1), (0, 2), (1, 1)]))

    assert [bytes(body) for body in found] == [
        packet_of("b", 1, 0),
        bodies[0],
        packet_of("b", 2, 0),
    ]


@pytest.mark.parametrize(
    ("frames", "runs", "reason"),
    [
        ([frame(1, 1)], [(0, 1)], "1 frames, 2 to"),
        ([frame(1, 1), frame(1, 1)], [(1, 1), (0, 1)], "a frame twice"),
        ([frame(1, 1), frame(2, 1, origin=9)], [(1, 1), (0, 1)], "several origins"),
        ([frame(1, 2), frame(2, 1)], [(1, 2), (0, 1)], "disagree"),
        ([frame(1, 2), frame(2, 1)], [(0, 2), (7, 1)], "a run of 1 packets of frame 7"),
        ([frame(1, 1), frame(2, 0, flags=CUSTODY_FLAG)], [(0, 1)], "flags 0x01"),
    ],
)
def test_what_is_no_bundle_is_refused(frames, runs, reason):
    with pytest.raises(DecodeError, match=reason):
        unpack_bundle(packed(frames, runs))


@given(bundles(), st.data())
def test_damaged_bundles_are_refused_or_read_and_nothing_else_happens(bundle, data):
    wire = bytearray(packed(*bundle))
    for _ in range(data.draw(st.integers(1, 4))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    del wire[data.draw(st.integers(1, len(wire))) :]

    try:
        frames = frames_of(bytes(wire))
        if len(frames) > 1:
            found = [each for each, _ in frames]
            list(in_order([each.body for each in found], runs_of(found)))
    except DecodeError:
        pass

"""The wire form of frames."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from federator.errors import DecodeError
from federator.protocol.forwarding import frames
from federator.protocol.forwarding.frames import HEADER_BYTES, PUBLISH_BYTES_MIN, Frame
from federator.protocol.types import BrokerId, Epoch
from tests.protocol.frames import made_frame

_U32 = st.integers(0, 2**32 - 1)
_U64 = st.integers(0, 2**64 - 1)


@st.composite
def frames_of_any_kind(draw: st.DrawFn) -> Frame:
    keys = sorted(draw(st.sets(_U64, min_size=1, max_size=20)))
    hop_limit = draw(st.integers(1, 255))
    publications = draw(st.integers(1, 5))
    body = draw(st.binary(min_size=publications * PUBLISH_BYTES_MIN, max_size=100))
    flags = draw(st.sampled_from(sorted(frames._KINDS)))
    return Frame(
        flags=flags,
        hops=draw(st.integers(0, hop_limit - 1)),
        hop_limit=hop_limit,
        sender=BrokerId(draw(_U32)),
        origin=BrokerId(draw(_U32)),
        epoch=Epoch(draw(_U64)),
        seq=draw(_U64),
        origin_time_us=draw(_U64),
        publications=0 if flags == frames.TRACE_FLAG else publications,
        keys=b"".join(key.to_bytes(8, "big") for key in keys),
        mask=draw(st.integers(1, 2 ** len(keys) - 1)),
        body=memoryview(body),
        chain=draw(st.binary(min_size=8 * len(keys), max_size=8 * len(keys)))
        if flags & ~frames.TRACE_FLAG
        else b"",
        route=tuple(map(BrokerId, draw(st.lists(_U32, max_size=64))))
        if flags & frames.REPAIR_FLAG
        else (),
        proof=draw(st.binary(max_size=100)) if flags & ~frames.TRACE_FLAG else b"",
    )


A_FRAME = made_frame(
    origin=7,
    sender=5,
    hops=2,
    hop_limit=64,
    epoch=3,
    seq=9,
    origin_time_us=1_000_000,
    keys=(1).to_bytes(8, "big") + (2).to_bytes(8, "big"),
    mask=0b10,
    body=b"0\x05\x00\x01ax\x00",
)


@given(frames_of_any_kind())
def test_a_frame_comes_back_as_it_was_sent(frame: Frame) -> None:
    assert frames.unpack(frames.pack(frame)) == frame


@given(frame=frames_of_any_kind(), sender=_U32, data=st.data())
def test_a_new_label_changes_the_hop_and_nothing_else(
    frame: Frame, sender: int, data: st.DataObject
) -> None:
    mask = data.draw(st.integers(1, 2**frame.k - 1))

    label = frames.pack_label(
        frame, hops=frame.hops, sender=BrokerId(sender), mask=frames.mask_bytes(mask, frame.k)
    )

    relayed = frames.unpack(label + bytes(frame.body))
    assert relayed == structs.replace(frame, sender=BrokerId(sender), mask=mask)


@given(frame=frames_of_any_kind(), data=st.data())
def test_a_damaged_frame_is_refused_or_still_a_valid_one(frame: Frame, data: st.DataObject) -> None:
    wire = bytearray(frames.pack(frame))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(wire), HEADER_BYTES + 24) - 1))
        wire[at] = data.draw(st.integers(0, 255))
    damaged = bytes(wire[: data.draw(st.integers(0, len(wire)))])

    try:
        decoded = frames.unpack(damaged)
    except DecodeError:
        return

    assert frames.pack(decoded) == damaged
    assert decoded.hops < decoded.hop_limit
    assert 0 < decoded.mask < 2**decoded.k
    assert len(decoded.body) >= decoded.publications * PUBLISH_BYTES_MIN


@given(st.binary(max_size=200))
def test_garbage_raises_nothing_but_decode_error(garbage: bytes) -> None:
    try:
        decoded = frames.unpack(garbage)
    except DecodeError:
        return

    assert frames.pack(decoded) == garbage


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, b"\x03", "version 3"),
        (1, b"\x20", "a trace of 1 publications"),
        (1, b"\x40", "flags 0x40"),
        (1, b"\xa0", "flags 0x20"),
        (1, b"\x80", "flags 0x80"),
        (2, b"\x40", "64 hops of at most 64"),
        (36, b"\x00\x00\x00\x00", "hold 0 publications"),
        (36, b"\x00\x00\x00\x02", "hold 2 publications"),
        (40, b"\x00\x00", "no filters"),
        (42, b"\x00\x00\x00\x00\x00\x00\x00\x02", "not ascending"),
        (58, b"\x00", "mask 0x0 over 2 filters"),
        (58, b"\x04", "mask 0x4 over 2 filters"),
    ],
)
def test_each_contradiction_is_refused_with_its_reason(at: int, value: bytes, reason: str) -> None:
    wire = bytearray(frames.pack(A_FRAME))
    wire[at : at + len(value)] = value

    with pytest.raises(DecodeError, match=reason):
        frames.unpack(bytes(wire))


def test_the_body_is_a_view_of_what_arrived() -> None:
    wire = frames.pack(A_FRAME)

    assert frames.unpack(wire).body.obj is wire

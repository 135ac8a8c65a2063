"""Datagrams on the wire: what is packed is unpacked, and anything else is refused in one way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import DecodeError
from federator.protocol.datagrams import wire

NUMBER_MAX = 2**32 - 1

u32 = st.integers(0, NUMBER_MAX)
places = st.integers(1, wire.PARTS_PER_FRAME_MAX).flatmap(
    lambda parts: st.builds(wire.Place, u32, st.integers(0, parts - 1), st.just(parts))
)
contents = st.builds(wire.content, places, st.binary(min_size=1, max_size=1_000))
parts = st.builds(wire.Part, u32, st.integers(0, 255), contents)
reports = st.builds(
    wire.Report,
    u32,
    u32,
    st.integers(0, 65_535),
    u32,
    st.integers(0, 2**wire.WINDOW - 1),
    st.integers(0, 1_000_000),
    st.integers(100, 65_535),
)


@st.composite
def repairs(draw):
    count = draw(st.integers(1, wire.PARTS_PER_WINDOW_MAX))
    place = draw(st.integers(count, count + wire.REPAIRS_PER_WINDOW_MAX - 1))
    symbol = draw(st.binary(min_size=1, max_size=120)).ljust(16, b"\1")
    return wire.Repair(draw(u32), place, count, symbol[: len(symbol) // 8 * 8])


@given(st.one_of(parts, repairs(), reports), u32, u32)
def test_what_is_packed_is_unpacked(body, stream, number):
    match body:
        case wire.Part():
            kind, packed = wire.PART, wire.part_body(body)
        case wire.Repair():
            kind, packed = wire.REPAIR, wire.repair_body(body)
        case wire.Report():
            kind, packed = wire.REPORT, wire.report_body(body)

    datagram = wire.head(kind, stream=stream, number=number) + packed

    assert wire.unpack(datagram) == (stream, number, body)


@given(contents, st.integers(0, 20))
def test_a_symbol_holds_a_part_of_any_length(content, longer):
    size = wire.symbol_bytes([content]) + 8 * longer

    symbol = wire.to_symbol(content, size)

    assert len(symbol) == size
    assert size % 8 == 0
    assert wire.from_symbol(symbol) == content


@given(st.binary(max_size=200), st.integers(0, 5))
def test_anything_else_is_refused_and_never_raises_otherwise(data, kind):
    for datagram in (data, bytes([kind]) + data):
        try:
            stream, number, body = wire.unpack(datagram)
        except DecodeError:
            continue
        if isinstance(body, wire.Part):
            with pytest.raises(DecodeError) if len(body.content) <= 8 else _any_end():
                wire.open_content(body.content)
        assert 0 <= number <= NUMBER_MAX
        assert 0 <= stream <= NUMBER_MAX


class _any_end:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return kind is None or issubclass(kind, DecodeError)


@pytest.mark.parametrize("size", [576, 1_000, 1_167, 1_439])
def test_neither_parts_nor_repair_packets_are_longer_than_a_datagram(size):
    from federator.protocol.datagrams.sender import Limits, Sender  # noqa: PLC0415
    from federator.runtime.datagrams.raptor import RaptorCoder  # noqa: PLC0415

    limits = Limits(datagram_bytes=size, bytes_per_s=10**9)
    sender = Sender(limits, RaptorCoder(), stream=1)
    sender.plr, sender.abl = 0.1, 2.0
    datagrams = sender.offer(bytes(40_000), now_ms=0) + sender.on_deadline(now_ms=1_000).datagrams

    assert sender.counters.repairs > 5
    assert max(map(len, datagrams)) <= size
    assert max(map(len, datagrams)) > size - 32

"""Traces: a logbook goes along with data, and its copies go home the same way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import DecodeError
from federator.protocol.forwarding.frames import CUSTODY_FLAG, TRACE_FLAG, Frame, pack, unpack
from federator.protocol.messages.codec import decode, encode
from federator.protocol.messages.control import PATH_MAX, TRACE_HOPS_MAX, TraceEcho
from federator.protocol.rate_limiter import TokenBucket
from federator.protocol.telemetry.tracing import (
    Logbook,
    Onward,
    Stop,
    echo,
    read_logbook,
    towards_origin,
    write_logbook,
)

BOOK = Logbook("a/b", (Stop(1, 10), Stop(2, 20), Stop(3, 25)))
ONWARD = Onward(True, True, ((4, 0), (5, 99)))


def trace(body, **fields):
    frame = {"hops": 1, "hop_limit": 9, "sender": 2, "origin": 1, "epoch": 7, "seq": 3}
    frame |= {"origin_time_us": 10, "publications": 0, "keys": bytes(8), "mask": 1}
    return Frame(flags=TRACE_FLAG, body=memoryview(body), **(frame | fields))


def test_a_trace_is_a_frame_without_publications():
    body = write_logbook(BOOK)

    found = unpack(pack(trace(body)))

    assert (found.flags, found.publications, bytes(found.body)) == (TRACE_FLAG, 0, body)
    assert found.chain == b""
    assert read_logbook(found.body, sender=3) == BOOK


def test_a_trace_is_nothing_else_as_well():
    payload = bytearray(pack(trace(write_logbook(BOOK))))
    payload[1] |= CUSTODY_FLAG

    with pytest.raises(DecodeError, match="no kind of frame"):
        unpack(bytes(payload))


def test_an_echo_goes_home_the_way_the_trace_came():
    told = echo(BOOK, ONWARD, epoch=7, number=3)
    assert (told.sender, told.at, told.path) == (3, 2, (1, 2, 3))

    at_two = towards_origin(decode("ctl", encode(told)), 2)
    home = towards_origin(decode("ctl", encode(at_two)), 1)

    assert (at_two.sender, at_two.at) == (2, 1)
    assert home.at == 0
    assert (home.path, home.times_us, home.next_hops) == ((1, 2, 3), (10, 20, 25), ONWARD.next_hops)


@pytest.mark.parametrize(
    "change",
    [
        {"at": 0},  # is at home
        {"at": 3},
        {"sender": 1},  # not who should send it
        {"path": (1, 9, 3)},  # not by us
        {"path": (1, 2, 3, 4)},
        {"times_us": (10, 20)},
    ],
)
def test_an_echo_that_lost_its_way_goes_no_further(change):
    told = echo(BOOK, ONWARD, epoch=7, number=3)
    values = {name: getattr(told, name) for name in told.__struct_fields__}

    assert towards_origin(TraceEcho(**(values | change)), 2) is None


def test_a_logbook_of_somebody_else_or_without_room_is_none():
    with pytest.raises(DecodeError, match="last seen by 3"):
        read_logbook(write_logbook(BOOK), sender=2)
    full = Logbook("a", tuple(Stop(1, n) for n in range(PATH_MAX)))
    with pytest.raises(DecodeError, match="64 stops already"):
        read_logbook(write_logbook(full), sender=1)
    with pytest.raises(DecodeError):
        read_logbook(write_logbook(Logbook("a/#", BOOK.stops)), sender=3)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_logbook_or_a_decode_error(body):
    try:
        read_logbook(body, sender=1)
    except DecodeError:
        return
    raise AssertionError("a logbook by chance")


def test_what_is_told_is_bounded():
    onward = Onward(True, False, [(n, 0) for n in range(1_000)], "why" * 1_000)

    told = decode("ctl", encode(echo(BOOK, onward, epoch=7, number=3)))

    assert len(told.next_hops) == TRACE_HOPS_MAX


def test_an_allowance_is_used_up_and_comes_back():
    allowance = TokenBucket(5)

    assert [allowance.take(1_000) for _ in range(6)] == [True] * 5 + [False]
    assert not allowance.take(1_100)
    assert allowance.take(1_300)
    assert [allowance.take(9_000) for _ in range(6)] == [True] * 5 + [False]

"""Bytes to frames and back, held against RFC 6455 by hand; and what a bad server cannot do."""

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from federator.errors import LinkError
from federator.runtime.ways.websocket import (
    FRAME_BYTES_MAX,
    FRAMES_PER_TURN_MAX,
    REASON_CHARACTERS_MAX,
    Stage,
    WebSocket,
)
from tests.runtime.ways.by_hand import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    accept,
    frame,
    head,
    unframe,
)


def opened():
    websocket = WebSocket("gateway", None, "/mqtt")
    websocket.receive(accept(websocket.request()))
    assert all_taken(websocket) == b""
    assert websocket.stage is Stage.OPEN
    return websocket


def all_taken(websocket):
    taken, more = websocket.take()
    while more:
        piece, more = websocket.take()
        taken += piece
    return bytes(taken)


messages = st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=4), max_size=6)
"""Each of some fragments."""


@given(messages, st.lists(st.integers(1, 200), min_size=1), st.binary(max_size=125))
@example([[b"x" * 65_535, b"", b"y" * 65_536]], [70_000, 1], b"")
def test_what_comes_in_frames_of_any_kind_and_reads_of_any_length_is_what_was_said(
    messages, reads, ping
):
    wire = b""
    for fragments in messages:
        for index, fragment in enumerate(fragments):
            opcode = BINARY if index == 0 else 0
            wire += frame(fragment, opcode, fin=index == len(fragments) - 1)
            wire += frame(ping, PING) + frame(b"", PONG)
    websocket, came, at, turn = opened(), b"", 0, 0

    while at < len(wire):
        websocket.receive(wire[at : at + reads[turn % len(reads)]])
        came += all_taken(websocket)
        at, turn = at + reads[turn % len(reads)], turn + 1

    assert came == b"".join(b"".join(fragments) for fragments in messages)
    assert websocket.ping == (ping if messages else None)


@given(st.binary(max_size=400))
@example(b"")
@example(b"z" * FRAME_BYTES_MAX)
@example(b"z" * (2 * FRAME_BYTES_MAX + 1))
def test_what_is_sent_is_what_a_server_finds_under_the_masks(data):
    websocket = opened()

    frames, rest = unframe(b"".join(websocket.frames(memoryview(data))))

    assert rest == b""
    assert b"".join(payload for _, _, payload in frames) == data
    assert all(opcode == BINARY for opcode, _, _ in frames)
    assert all(len(payload) <= FRAME_BYTES_MAX for _, _, payload in frames)


def test_each_frame_has_a_mask_of_its_own():
    websocket = opened()

    masks = {unframe(websocket.frames(b"a")[0])[0][0][1] for _ in range(50)}

    assert len(masks) > 45


def test_a_frame_without_an_end_is_passed_on_and_not_kept():
    websocket = opened()
    websocket.receive(head(2**62, fin=False))

    for _ in range(100):
        websocket.receive(b"x" * 10_000)

        assert websocket.take() == (b"x" * 10_000, False)


def test_a_turn_takes_a_bounded_number_of_frames_apart():
    websocket = opened()
    websocket.receive(frame(b"") * FRAMES_PER_TURN_MAX + frame(b"last"))

    assert websocket.take() == (b"", True)
    assert websocket.take() == (b"last", False)


def test_the_last_ping_alone_is_answered():
    websocket = opened()
    websocket.receive(frame(b"1", PING) + frame(b"2", PING))
    all_taken(websocket)

    (answer,), rest = unframe(websocket.pong())

    assert (answer[0], answer[2], rest) == (PONG, b"2", b"")
    assert websocket.ping is None


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (frame(b"hello", TEXT), "a WebSocket frame of text"),
        (frame(b"\xff", TEXT), "malformed WebSocket frame"),
        (frame(b"a", 3), "malformed WebSocket frame: Invalid opcode"),
        (frame(b"a", 0), "malformed WebSocket frame: unexpected CONTINUATION"),
        (frame(b"a", fin=False) + frame(b"a"), "malformed WebSocket frame: expected CONT"),
        (frame(b"a", PING, fin=False), "malformed WebSocket frame: Invalid attempt to frag"),
        (frame(b"a" * 126, PING), "malformed WebSocket frame: Control frame with payload"),
        (b"\xc2\x01a", "malformed WebSocket frame: Reserved bit set"),
        (b"\x82\x81\0\0\0\0a", "malformed WebSocket frame: client received unexpected masked"),
        (head(2**63), "malformed WebSocket frame: 8-byte payload length"),
        (b"\x82\x7e\x00\x01a", "malformed WebSocket frame: Payload length used 2 bytes"),
        (frame(b"x", CLOSE), "malformed WebSocket frame: CLOSE with 1 byte"),
        (frame(b"\x03\xed", CLOSE), "malformed WebSocket frame: remote CLOSE"),
        (frame(b"\x03\xe8\xff", CLOSE), "malformed WebSocket frame: Error decoding CLOSE"),
    ],
)
def test_what_is_no_frame_of_a_broker_ends_it_with_one_line(said, told):
    websocket = opened()
    websocket.receive(said)

    with pytest.raises(LinkError, match=told) as raised:
        all_taken(websocket)

    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (frame(b"", CLOSE), None),
        (frame(b"\x03\xe8", CLOSE), None),
        (frame(b"\x03\xe9", CLOSE), None),
        (frame(b"\x03\xf1", CLOSE), "the broker closed the WebSocket (1009)"),
        (frame(b"\x0f\xa0go\nway", CLOSE), "the broker closed the WebSocket (4000): go?way"),
        (frame(b"\x03\xe8bye", CLOSE), "the broker closed the WebSocket (1000): bye"),
    ],
)
def test_a_broker_that_closes_is_answered_and_its_reason_told(said, reason):
    websocket = opened()
    websocket.receive(frame(b"last") + said + b"what comes behind says nothing")

    assert all_taken(websocket) == b"last"
    assert websocket.stage is Stage.CLOSED
    assert websocket.reason == reason
    assert [opcode for opcode, _, _ in unframe(websocket.close())[0]] == [CLOSE]


def answered(change):
    websocket = WebSocket("::1", 8080, "/a/b")
    request = websocket.request()
    assert request.startswith(b"GET /a/b HTTP/1.1\r\n")
    assert b"Host: [::1]:8080\r\n" in request
    assert b"Sec-WebSocket-Protocol: mqtt\r\n" in request
    websocket.receive(change(accept(request)))
    all_taken(websocket)
    return websocket


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda _: b"HTTP/1.1 404 Not Found\r\n\r\n", "refused: HTTP 404 for '/a/b'"),
        (lambda _: b"HTTP/1.1 301 Moved\r\nLocation: x\r\n\r\n", "refused: HTTP 301"),
        (lambda _: b"HTTP/1.1 102 Processing\r\n\r\n", "refused: HTTP 102"),
        (lambda good: good.replace(b": mqtt\r\n", b": chat\r\n"), "unrecognized subprotocol"),
        (lambda good: good.replace(b"-Protocol: mqtt", b"-Other: x"), "refused: .* none for MQTT"),
        (lambda good: good.replace(b"Accept: ", b"Accept: A"), "Bad accept token"),
        (lambda good: good.replace(b"Connection: Upgrade\r\n", b""), "Missing header"),
        (lambda good: good.replace(b": mqtt", b": \xff"), "no WebSocket answers"),
        (
            lambda good: good[:-2] + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
            "unrecognized extension",
        ),
        (lambda _: b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "no WebSocket answers at '/a/b': Bad HTTP"),
        (lambda _: b"HTTP/1.1 101 " + b"x" * 100_000, "no WebSocket answers at '/a/b': Bad HTTP"),
    ],
)
def test_an_answer_that_opens_no_websocket_for_mqtt_is_told_in_one_line(change, told):
    with pytest.raises(LinkError, match=told) as raised:
        answered(change)

    assert len(str(raised.value)) < REASON_CHARACTERS_MAX + 60
    assert answered(lambda good: good).stage is Stage.OPEN


def test_what_comes_right_behind_the_answer_is_not_lost():
    websocket = WebSocket("gateway", None, "/mqtt")
    websocket.receive(accept(websocket.request()) + frame(b"early"))

    assert all_taken(websocket) == b"early"


@given(st.binary(max_size=200), st.integers(1, 50), st.booleans())
def test_noise_is_never_more_than_a_link_error(noise, size, is_open):
    websocket = opened() if is_open else WebSocket("gateway", None, "/mqtt")
    if not is_open:
        websocket.request()

    with contextlib.suppress(LinkError):
        for at in range(0, len(noise), size):
            websocket.receive(noise[at : at + size])
            all_taken(websocket)

    assert is_open or websocket.stage is not Stage.OPEN

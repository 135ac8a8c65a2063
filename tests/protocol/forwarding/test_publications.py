"""Runs of PUBLISH packets, checked without the codec and compared with it."""

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import PublishPacket, QoS

from federator.errors import DecodeError
from federator.protocol.forwarding import publications
from federator.protocol.forwarding.publications import RunChecker

# No control characters and no non-characters: brokers take none.
_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cn")), max_size=20)
_TOPIC = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cn"), exclude_characters="#+"),
    min_size=1,
    max_size=20,
).filter(lambda topic: not topic.startswith("$"))


@st.composite
def packets(draw: st.DrawFn, qos: st.SearchStrategy[int]) -> bytes:
    level = draw(qos)
    return PublishPacket(
        draw(_TOPIC),
        draw(st.one_of(st.binary(max_size=50), st.just(b"x" * 20_000))),
        qos=QoS(level),
        retain=draw(st.booleans()),
        packet_id=draw(st.integers(1, 65_535)) if level else None,
        duplicate=bool(level) and draw(st.booleans()),
        payload_format_indicator=draw(st.integers(0, 1)),
        message_expiry_interval=draw(st.one_of(st.none(), st.integers(0, 2**32 - 1))),
        content_type=draw(st.one_of(st.none(), _TEXT)),
        response_topic=draw(st.one_of(st.none(), _TOPIC)),
        correlation_data=draw(st.one_of(st.none(), st.binary(max_size=20))),
        user_properties=draw(st.lists(st.tuples(_TEXT, _TEXT), max_size=3)),
    ).write()


plain_runs = st.lists(packets(st.just(0)), min_size=1, max_size=5)
acknowledged_runs = st.lists(packets(st.integers(1, 2)), min_size=1, max_size=5)
A_RUN = PublishPacket("a/b", b"x").write()


@given(plain_runs)
def test_what_the_codec_wrote_with_qos_0_is_in_order(run: list[bytes]) -> None:
    checker = RunChecker()

    for _ in ("new topics", "known topics"):
        assert not checker.check(b"".join(run), acknowledged=False, publications=len(run))


@given(acknowledged_runs)
def test_packets_with_qos_are_found_with_their_identifiers(run: list[bytes]) -> None:
    joined = b"".join(run)

    places = RunChecker().check(joined, acknowledged=True, publications=len(run))

    assert [joined[start:end] for start, end, _, _ in places] == run
    for (_, _, id_at, qos), packet in zip(places, run, strict=True):
        parsed, _ = mqtt5.read(memoryview(packet))
        assert isinstance(parsed, PublishPacket)
        assert int.from_bytes(joined[id_at : id_at + 2], "big") == parsed.packet_id
        assert qos == parsed.qos


@given(run=st.one_of(plain_runs, acknowledged_runs), data=st.data())
def test_what_passes_the_check_the_codec_reads_too(run: list[bytes], data: st.DataObject) -> None:
    damaged = bytearray(b"".join(run))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(60, len(damaged) - 1)))
        damaged[at] = data.draw(st.integers(0, 255))
    acknowledged = data.draw(st.booleans())

    try:
        RunChecker().check(bytes(damaged), acknowledged=acknowledged, publications=len(run))
    except DecodeError:
        return

    at = 0
    for _ in run:
        packet, size = mqtt5.read(memoryview(damaged)[at:])
        assert isinstance(packet, PublishPacket)
        assert (int(packet.qos) > 0) == acknowledged
        assert packet.topic_alias is None
        assert not packet.subscription_ids
        assert packet.topic[0] != "$"
        assert not set(packet.topic) & set("#+\0")
        at += size
    assert at == len(damaged)


@given(st.binary(max_size=60), st.booleans())
def test_garbage_raises_nothing_but_decode_error(garbage: bytes, acknowledged: bool) -> None:
    try:
        RunChecker().check(garbage, acknowledged=acknowledged, publications=1)
    except DecodeError:
        return

    packet, size = mqtt5.read(memoryview(garbage))
    assert isinstance(packet, PublishPacket)
    assert size == len(garbage)


def _raw(topic: bytes, properties: bytes = b"", first: int = 0x30) -> bytes:
    rest = len(topic).to_bytes(2, "big") + topic + bytes([len(properties)]) + properties
    return bytes([first, len(rest)]) + rest


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (b"\xe0\x00", "begins with 0xe0"),
        (b"\x38" + A_RUN[1:], "begins with 0x38"),
        (b"\x32" + A_RUN[1:], "begins with 0x32"),
        (A_RUN + A_RUN, "2 publications, 1 wanted"),
        (A_RUN[:-1], "too short"),
        (A_RUN[:1], "ends inside a packet"),
        (b"\x30\xff\xff\xff\xff\x01", "more than 4 bytes"),
        (b"\x30\x85\x00\x00\x01a\x00p", "more bytes than it needs"),
        (b"\x30\x06\x00\x01a\x80\x00p", "more bytes than it needs"),
        (_raw(b"$SYS/x"), "may not be published"),
        (_raw(b"a/+"), "may not be published"),
        (_raw(b"#"), "may not be published"),
        (_raw(b""), "may not be published"),
        (_raw(b"a\0"), "null character"),
        (_raw(b"a\n"), "our broker might end us"),
        (_raw(b"a", b"\x26\x00\x01\n\x00\x01a"), "our broker might end us"),
        (_raw(b"\xff"), "not UTF-8"),
        (_raw(b"a", b"\x23\x00\x01"), "0x23 does not travel"),
        (_raw(b"a", b"\x0b\x01"), "0x0b does not travel"),
        (_raw(b"a", b"\x01\x00\x01\x00"), "0x01 twice"),
        (_raw(b"a", b"\x01\x02"), "payload format 2"),
        (_raw(b"a", b"\x02\x00"), "longer than the properties"),
        (_raw(b"a", b"\x08\x00\x01#"), "response topic"),
        (_raw(b"a", b"\x26\x00\x01\xff\x00\x01a"), "not UTF-8"),
    ],
)
def test_what_would_cost_the_connection_is_refused(run: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        RunChecker().check(run, acknowledged=False, publications=1)


def test_known_topics_stay_within_their_bound(monkeypatch) -> None:
    monkeypatch.setattr(publications, "KNOWN_TOPICS_MAX", 10)
    checker = RunChecker()

    for n in range(100):
        checker.check(_raw(b"a/%d" % n), acknowledged=False, publications=1)

    assert len(checker._seen) <= 10


@given(st.integers(0, 2**28 - 1))
def test_lengths_are_written_as_they_are_read(value: int) -> None:
    encoded = publications.variable_byte_integer(value)

    assert publications.read_variable_byte_integer(encoded, 0) == (value, len(encoded))

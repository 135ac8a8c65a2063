"""Bytes to packets and back: any split of the stream, any topic, any payload."""

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import LinkError
from federator.runtime.mqtt import transport
from federator.runtime.mqtt.transport import (
    LONG_READ_BYTES_MAX,
    RECEIVE_BUFFER_BYTES,
    PacketTransport,
)
from federator.runtime.mqtt.wire import (
    PUBACK,
    Inbound,
    acknowledgement,
    acknowledgements,
    address_publish,
    is_publish,
    lower_qos,
    packet_id_at,
    packet_length,
    publish_topic,
    read_packets,
    split_run,
)

topics = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="#+"), min_size=1, max_size=40
)


@st.composite
def publish_packets(draw, *, levels=(0, 1, 2), payload_max=300):
    level = draw(st.sampled_from(levels))
    return mqtt5.PublishPacket(
        draw(topics),
        draw(st.binary(max_size=payload_max)),
        qos=mqtt5.QoS(level),
        packet_id=draw(st.integers(1, 65_535)) if level else None,
        user_properties=draw(st.lists(st.tuples(topics, topics), max_size=2)),
    )


other_packets = st.sampled_from(
    [
        mqtt5.PubAckPacket(7),
        mqtt5.PubRelPacket(65_535),
        mqtt5.PingRespPacket(),
        mqtt5.SubAckPacket(3, [mqtt5.SubAckReasonCode.GRANTED_QOS_EXACTLY_ONCE]),
    ]
)


class Reader:
    """Feeds a transport as a socket does, and keeps every packet's bytes."""

    def __init__(self, packet_bytes_max: int = 16 * 1024 * 1024) -> None:
        self.publishes: list[bytes] = []
        self.others: list[mqtt5.Packet] = []
        self.reads = 0
        self.transport = PacketTransport(
            self._on_read, packet_bytes_max=packet_bytes_max, queue_bytes_max=1_000
        )

    def _on_read(self, chunk: memoryview) -> int:
        found: list[Inbound] = []
        used = read_packets(chunk, found, self.others)
        self.publishes.extend(bytes(chunk[start:end]) for _, start, end in found)
        return used

    def feed(self, piece: bytes) -> None:
        while piece:
            room = self.transport.get_buffer(-1)
            size = min(len(room), len(piece))
            room[:size] = piece[:size]
            self.transport.buffer_updated(size)
            self.reads += 1
            piece = piece[size:]


def stream_of(packets):
    return b"".join(packet.write() for packet in packets)


def publishes_of(packets):
    return [packet.write() for packet in packets if isinstance(packet, mqtt5.PublishPacket)]


@given(st.lists(publish_packets() | other_packets, max_size=12), st.data())
async def test_any_cuts_of_a_stream_give_the_same_packets(packets, data):
    stream = stream_of(packets)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    reader = Reader()

    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reader.feed(stream[start:end])

    assert reader.publishes == publishes_of(packets)
    assert len(reader.others) == len(packets) - len(reader.publishes)


async def test_the_buffer_grows_for_long_packets_and_shrinks_when_none_came_for_a_while(
    monkeypatch,
):
    small = mqtt5.PublishPacket("s", b"1")
    packets = [small, mqtt5.PublishPacket("long", b"y" * 3_000_000), small]
    reader = Reader()

    reader.feed(stream_of(packets))

    assert reader.publishes == publishes_of(packets)
    assert len(reader.transport.get_buffer(-1)) == LONG_READ_BYTES_MAX
    monkeypatch.setattr(transport, "LONG_S", 0)
    reader.feed(mqtt5.PingRespPacket().write())
    assert len(reader.transport.get_buffer(-1)) == RECEIVE_BUFFER_BYTES


async def test_a_read_takes_several_of_the_long_packets_of_a_stream():
    packets = [mqtt5.PublishPacket("image", bytes(65_536)) for _ in range(64)]
    reader = Reader()

    reader.feed(stream_of(packets))

    assert reader.publishes == publishes_of(packets)
    assert reader.reads <= len(packets) / 4


async def test_a_packet_longer_than_the_bound_ends_the_connection_with_a_clear_reason():
    reader = Reader(packet_bytes_max=1_000)

    reader.feed(mqtt5.PublishPacket("t", b"z" * 2_000).write()[:8])

    assert str(reader.transport.reason) == "a packet of 2007 bytes, at most 1000 wanted"


@pytest.mark.parametrize(
    "malformed",
    [
        b"\x00\x00",
        b"\x30\xff\xff\xff\xff\x01",
        b"\x30\x03\x00\x09a",
        b"\x36\x05\x00\x01a\x00\x00",
        pytest.param(
            b"\x30\x05\x00\x02\xff\xfe\x00",
            id="a topic that is not UTF-8",
            # The codec panics, and leaves an exception behind that Python can only report.
            marks=pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
        ),
    ],
)
async def test_malformed_bytes_end_the_connection_after_the_packets_before_them(malformed):
    good = mqtt5.PublishPacket("t", b"1").write()
    publishes: list[Inbound] = []

    with pytest.raises(LinkError, match="malformed packet"):
        read_packets(memoryview(good + malformed), publishes, [])

    assert [end for _, _, end in publishes] == [len(good)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@given(st.binary(max_size=200))
async def test_no_bytes_at_all_raise_anything_but_a_link_error(noise):
    try:
        used = read_packets(memoryview(noise), [], [])
    except LinkError:
        return

    assert 0 <= used <= len(noise)


@given(publish_packets(payload_max=20_000))
def test_a_packet_s_length_is_told_by_its_first_bytes(packet):
    encoded = packet.write()

    assert packet_length(encoded[:5]) == len(encoded)
    assert packet_length(encoded[:1]) is None


@given(publish_packets(levels=(1, 2)), st.integers(1, 65_535), st.booleans())
def test_identifier_and_dup_are_written_in_place(packet, packet_id, duplicate):
    encoded = bytearray(packet.write())

    address_publish(encoded, packet_id_at(encoded), packet_id, duplicate=duplicate)

    read, size = mqtt5.read(memoryview(encoded))
    assert isinstance(read, mqtt5.PublishPacket)
    assert size == len(encoded)
    assert (read.packet_id, read.duplicate) == (packet_id, duplicate)
    assert (read.topic, read.payload, read.qos) == (packet.topic, packet.payload, packet.qos)
    assert publish_topic(encoded) == packet.topic


@given(publish_packets(levels=(1, 2), payload_max=20_000), st.integers(0, 1))
def test_a_lowered_packet_differs_in_nothing_but_qos_and_identifier(packet, qos):
    encoded = bytearray(packet.write())

    lowered = lower_qos(encoded, packet_id_at(encoded), qos)

    read, size = mqtt5.read(memoryview(lowered))
    assert isinstance(read, mqtt5.PublishPacket)
    assert size == len(lowered)
    assert int(read.qos) == qos
    assert (read.packet_id is None) == (qos == 0)
    assert (read.topic, read.payload) == (packet.topic, packet.payload)
    assert read.user_properties == packet.user_properties


@given(st.lists(publish_packets(levels=(0,)), max_size=10))
def test_a_run_splits_into_the_packets_it_was_made_of(packets):
    encoded = [packet.write() for packet in packets]

    assert split_run(b"".join(encoded)) == encoded
    assert all(is_publish(packet) for packet in encoded)


@given(st.integers(1, 65_535))
def test_acknowledgements_are_those_of_the_codec(packet_id):
    for kind, packet in (
        (0x40, mqtt5.PubAckPacket(packet_id)),
        (0x50, mqtt5.PubRecPacket(packet_id)),
        (0x62, mqtt5.PubRelPacket(packet_id)),
        (0x70, mqtt5.PubCompPacket(packet_id)),
    ):
        assert acknowledgement(kind, packet_id) == packet.write()


@given(st.lists(publish_packets() | other_packets, max_size=12), st.data())
def test_short_acknowledgements_of_success_are_told_apart_wherever_a_read_ends(packets, data):
    stream = stream_of(packets)
    end = data.draw(st.integers(0, len(stream)))
    plain: tuple[list[Inbound], list[mqtt5.Packet]] = ([], [])
    publishes: list[Inbound] = []
    others: list[mqtt5.Packet] = []
    acknowledged: list[int] = []

    used = read_packets(memoryview(stream)[:end], publishes, others, acknowledged=acknowledged)

    assert used == read_packets(memoryview(stream)[:end], *plain)
    assert len(publishes) == len(plain[0])
    acks = [each for each in plain[1] if isinstance(each, mqtt5.PubAckPacket)]
    assert acknowledged == [each.packet_id for each in acks]
    assert len(others) == len(plain[1]) - len(acks)


def test_an_acknowledgement_that_says_why_not_goes_by_the_codec():
    refusal = mqtt5.PubAckPacket(7, reason_code=mqtt5.PubAckReasonCode.NOT_AUTHORIZED)
    others: list[mqtt5.Packet] = []
    acknowledged: list[int] = []

    read_packets(memoryview(refusal.write()), [], others, acknowledged=acknowledged)

    assert (acknowledged, len(others)) == ([], 1)


@given(st.lists(st.integers(1, 65_535), max_size=30))
def test_acknowledgements_in_a_run_are_the_same_bytes(packet_ids):
    single = b"".join(acknowledgement(PUBACK, each) for each in packet_ids)

    assert acknowledgements(packet_ids) == single


def test_an_answer_that_only_mosquitto_gives_is_read_beside_others():
    chunk = b"\x40\x03\x00\x07\x95" + b"\x40\x02\x00\x08" + b"\x50\x04\x01\x09\x95\x00"
    acknowledged, too_large = [], []

    whole = read_packets(memoryview(chunk), [], [], acknowledged=acknowledged, too_large=too_large)
    cut = read_packets(memoryview(chunk[:-1]), [], [], acknowledged=[], too_large=[])

    assert (whole, cut) == (len(chunk), 9)
    assert (acknowledged, too_large) == ([8], [(1, 7), (2, 0x109)])

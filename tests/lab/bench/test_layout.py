"""Packets built by the thousand are what a codec would build one by one."""

import mqtt5
import numpy as np
import pytest

from federator.protocol.forwarding.publications import (
    read_variable_byte_integer,
    variable_byte_integer,
)
from lab.bench.wire import PACKET_ID_MAX, Layout, acknowledgements

TOPIC = "bench/t"


def as_version_5(packet: bytes, qos: int) -> mqtt5.PublishPacket:
    """MQTT 5 adds one byte, the length of the properties, after the packet identifier."""
    length, head = read_variable_byte_integer(packet, 1)
    assert head + length == len(packet)
    properties_at = head + 2 + len(TOPIC) + 2 * (qos > 0)
    rest = packet[head:properties_at] + b"\0" + packet[properties_at:]
    packet = packet[:1] + variable_byte_integer(len(rest)) + rest
    publish, size = mqtt5.read(packet)
    assert isinstance(publish, mqtt5.PublishPacket)
    assert size == len(packet)
    return publish


@pytest.mark.parametrize("size", [64, 120, 65_536, 1_000_000])
@pytest.mark.parametrize("qos", [0, 1])
def test_every_packet_is_a_publish_with_its_number_and_time(qos, size):
    layout = Layout(TOPIC, qos, size)
    rows = layout.blank(3, run=9)
    layout.number(rows, first=PACKET_ID_MAX - 1, sent_ns=123_456_789)

    for index in range(3):
        publish = as_version_5(rows[index].tobytes(), qos)
        payload = publish.payload
        number = PACKET_ID_MAX - 1 + index

        assert (publish.topic, publish.qos, len(payload)) == (TOPIC, qos, size)
        assert publish.packet_id == (number % PACKET_ID_MAX + 1 if qos else None)
        assert int.from_bytes(payload[:4], "big") == 9
        assert int.from_bytes(payload[4:12], "big") == number
        assert int.from_bytes(payload[12:20], "big") == 123_456_789


def test_a_read_gives_back_what_was_built_and_leaves_the_incomplete_end():
    layout = Layout(TOPIC, 0, 64)
    rows = layout.blank(5, run=1)
    layout.number(rows, first=10, sent_ns=0)
    data = rows.tobytes()

    read = layout.read(memoryview(data)[:-1])

    assert read["seq"].tolist() == [10, 11, 12, 13]
    assert layout.in_step(read)


@pytest.mark.parametrize("at", [0, 1, 3, 5])
def test_a_stream_that_is_not_ours_is_noticed(at):
    layout = Layout(TOPIC, 0, 64)
    data = bytearray(layout.blank(3, run=1).tobytes())
    data[layout.packet_bytes + at] ^= 0x10

    assert not layout.in_step(layout.read(memoryview(data)))


def test_a_retransmission_is_ours():
    layout = Layout(TOPIC, 1, 64)
    data = bytearray(layout.blank(2, run=1).tobytes())
    data[0] |= 0x08

    assert layout.in_step(layout.read(memoryview(data)))


def test_acknowledgements_name_each_packet():
    assert acknowledgements(np.array([1, 0x1234], np.uint16)) == bytes.fromhex("40020001 40021234")


def test_payloads_without_room_for_a_stamp_are_refused():
    with pytest.raises(ValueError, match="hold a stamp"):
        Layout(TOPIC, 0, 19)

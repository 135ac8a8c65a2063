"""A hundred thousand malformed, truncated, oversized and hostile inputs: each has its answer."""

import tracemalloc

import hypothesis.strategies as st
import mqtt5
import pytest
from hypothesis import given, settings

from federator.gateway import wire
from federator.gateway.wire import V5, V311, Kind, Reason
from federator.gateway.wire.fields import write_packet, write_varint
from tests.effort import seeds
from tests.gateway.corpus import client_packets, reframed, vandalized, versions

LIMIT = 2_000
EXAMPLES, VARIANTS = seeds(500), 200
"""Their product is the size of the corpus."""

SAID = {
    Reason.MALFORMED_PACKET,
    Reason.PROTOCOL_ERROR,
    Reason.UNSUPPORTED_VERSION,
    Reason.CLIENT_ID_NOT_VALID,
    Reason.TOPIC_FILTER_INVALID,
    Reason.TOPIC_NAME_INVALID,
    Reason.TOPIC_ALIAS_INVALID,
    Reason.PACKET_TOO_LARGE,
    Reason.QUOTA_EXCEEDED,
}


def read(block, packet, version):
    """Read a packet of a client the way its kind asks for."""
    match packet[0] & 0xF0:
        case Kind.CONNECT:
            return wire.read_connect(block, packet)
        case Kind.PUBLISH:
            topic, packet_id, id_at, alias = wire.read_publish(block, packet, version)
            return topic, packet_id, id_at - packet[1], alias  # wherever in the block it stands
        case Kind.SUBSCRIBE | Kind.UNSUBSCRIBE:
            return wire.read_request(block, packet, version)
        case Kind.PINGREQ:
            return wire.check_ping(packet)
        case Kind.DISCONNECT:
            return wire.read_disconnect(block, packet, version)
        case Kind.AUTH:
            raise wire.MalformedError("as every session answers it", Reason.PROTOCOL_ERROR)
        case _:
            return wire.read_ack(block, packet, version)


def verdict(stream, version, cuts=()):
    """What was read of a stream, packet by packet, and why it ended (``None`` if it did not)."""
    splitter = wire.Splitter(limit=LIMIT, firsts=wire.FROM_CLIENT)
    splitter.speak(version)
    taken = []
    for begin, end in zip((0, *cuts), (*cuts, len(stream)), strict=True):
        block, packets = splitter.feed(stream[begin:end])
        for packet in packets:
            try:
                said = read(block, packet, version)
            except wire.MalformedError as error:
                return taken, error.reason
            taken.append((block[packet[1] : packet[3]], said))
        assert splitter.held_bytes <= LIMIT
        if splitter.fault is not None:
            return taken, splitter.fault.reason
    return taken, None


@settings(max_examples=EXAMPLES)
@given(versions, st.data(), st.integers(0, 2**32))
def test_any_input_is_read_or_refused_with_a_reason_code_however_it_is_cut(version, data, seed):
    packet = data.draw(client_packets(version))

    for index, hostile in enumerate(vandalized(packet, seed, VARIANTS)):
        stream = hostile if index % 2 else reframed(hostile)
        taken, reason = verdict(stream, version)

        assert reason is None or reason in SAID
        middle = len(stream) * (index % 7) // 7
        assert verdict(stream, version, (middle,)) == (taken, reason)


@settings(max_examples=EXAMPLES // 5)
@given(st.data(), st.integers(0, 2**32))
def test_what_is_accepted_of_version_5_an_independent_codec_accepts_too(data, seed):
    packet = data.draw(client_packets(V5))

    for hostile in vandalized(packet, seed, VARIANTS // 4):
        taken, _ = verdict(reframed(hostile) + wire.PINGREQ, V5)

        for whole, _ in taken:
            _, size = mqtt5.read(whole)
            assert size == len(whole)


@settings(max_examples=EXAMPLES)
@given(versions, st.data())
def test_a_good_packet_is_accepted_and_no_truncation_of_it(version, data):
    packet = data.draw(client_packets(version))

    taken, reason = verdict(packet, version)

    assert reason is None
    assert [whole for whole, _ in taken] == [packet]
    for size in range(len(packet)):
        assert verdict(packet[:size], version) == ([], None)


@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=60), versions)
def test_noise_is_read_or_refused(noise, version):
    _, reason = verdict(noise, version)

    assert reason is None or reason in SAID


@pytest.mark.parametrize("version", [V311, V5])
def test_a_packet_that_announces_much_and_sends_it_in_drops_holds_what_was_sent(version):
    splitter = wire.Splitter(limit=1_000_000, firsts=wire.FROM_CLIENT)
    splitter.speak(version)
    splitter.feed(b"\x30\x80\x80\x20")

    tracemalloc.start()
    for _ in range(100_000):
        splitter.feed(b"ab")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert splitter.held_bytes > 200_000
    assert held < 4 * 200_000


def test_what_would_take_a_hundred_times_its_size_as_objects_is_refused():
    pairs = b"\x26\0\0\0\0" * 100_000
    publish = write_packet(Kind.PUBLISH, b"\0\1a", write_varint(len(pairs)), pairs)
    subscribe = write_packet(Kind.SUBSCRIBE | 2, b"\0\1", b"\0\1a\0" * 100_000)

    for packet, reader in ((publish, wire.read_publish), (subscribe, wire.read_request)):
        version = V5 if reader is wire.read_publish else V311
        with pytest.raises(wire.MalformedError) as caught:
            reader(packet, wire.only(packet), version)

        assert caught.value.reason == Reason.QUOTA_EXCEEDED

"""Retained publications found in runs of packets, against the codec."""

import mqtt5
from hypothesis import given
from hypothesis import strategies as st
from mqtt5 import PublishPacket, QoS

from federator.protocol.forwarding.publications import RunChecker, qos_of
from federator.protocol.retained.packets import (
    as_stored,
    at_least_once,
    payload_digest,
    retained_in,
)


@st.composite
def packets(draw):
    qos = draw(st.integers(0, 2))
    return PublishPacket(
        draw(st.sampled_from(["t", "t/ü", "t/" + "x" * 200])),
        draw(st.binary(max_size=200)),
        qos=QoS(qos),
        retain=draw(st.booleans()),
        duplicate=qos > 0 and draw(st.booleans()),
        packet_id=7 if qos else None,
        content_type=draw(st.sampled_from([None, "text", "y" * 200])),
    )


@given(st.lists(packets(), max_size=6))
def test_the_retained_ones_are_found_with_their_places(sent):
    wires = [packet.write() for packet in sent]
    run = b"".join(wires)

    found = list(retained_in(run))

    assert [each.number for each in found] == [n for n, p in enumerate(sent) if p.retain]
    for each in found:
        packet = sent[each.number]
        assert run[each.start : each.end] == wires[each.number]
        assert each.topic == packet.topic
        assert each.digest == payload_digest(packet.payload)
        assert each.deletes is (not packet.payload)


@given(packets())
def test_a_packet_is_kept_as_a_broker_stores_it(packet):
    stored, _ = mqtt5.read(as_stored(packet.write()))

    assert stored.retain
    assert not stored.duplicate
    assert (stored.topic, stored.payload, stored.qos) == (packet.topic, packet.payload, packet.qos)


@given(packets())
def test_a_packet_of_unknown_qos_goes_at_least_once_with_all_it_has(packet):
    wire = at_least_once(packet.write())

    made, size = mqtt5.read(wire)
    assert size == len(wire)
    assert qos_of(wire) == int(made.qos) == max(1, int(packet.qos))
    assert (made.topic, made.payload) == (packet.topic, packet.payload)
    assert (made.retain, made.content_type) == (packet.retain, packet.content_type)


@given(st.lists(packets(), min_size=1, max_size=4))
def test_a_checker_tells_whether_a_run_has_retained_ones(sent):
    sent = [packet for packet in sent if packet.qos == sent[0].qos]
    run = b"".join(packet.write() for packet in sent)
    checker = RunChecker()

    checker.check(run, acknowledged=int(sent[0].qos) > 0, publications=len(sent))

    assert checker.retained is any(packet.retain for packet in sent)

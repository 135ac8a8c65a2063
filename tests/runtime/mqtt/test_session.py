"""Which publications a handler sees, and what the broker is answered."""

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import LinkError
from federator.runtime.mqtt.session import MqttSession
from federator.runtime.mqtt.wire import Inbound, Out

NEW = mqtt5.ConnAckPacket(session_present=False)
KEPT = mqtt5.ConnAckPacket(session_present=True)


def started(*, acknowledge: bool = True) -> MqttSession:
    session = MqttSession(queue_bytes_max=1_000, acknowledge=acknowledge)
    session.resume(NEW, [])
    return session


def publish(packet_id: int, qos: int, *, again: bool = False) -> Inbound:
    level, known_as = mqtt5.QoS(qos), packet_id if qos else None
    packet = mqtt5.PublishPacket("t", b"", qos=level, packet_id=known_as, duplicate=again)
    return packet, 0, 10


def packets(out: Out) -> list[tuple[str, int]]:
    names = {0x40: "PUBACK", 0x50: "PUBREC", 0x70: "PUBCOMP"}
    return [(names[packet[0]], int.from_bytes(packet[2:4], "big")) for packet in out]


def test_one_read_is_answered_in_its_order():
    session = started()
    out: Out = []

    admitted = session.admit([publish(3, 1), publish(0, 0), publish(2, 2), publish(1, 1)], out)

    assert len(admitted) == 4
    assert packets(out) == [("PUBACK", 3), ("PUBREC", 2)]


def test_a_qos_1_publication_is_acknowledged_after_those_of_qos_2_before_it_are_complete():
    session = started()
    out: Out = []

    session.admit([publish(1, 2), publish(2, 1), publish(3, 2), publish(4, 1), publish(5, 1)], out)
    session.on_packet(mqtt5.PubRelPacket(1), out)
    session.on_packet(mqtt5.PubRelPacket(3), out)
    session.admit([publish(6, 1)], out)

    assert packets(out) == [
        *[("PUBREC", 1), ("PUBREC", 3)],
        *[("PUBCOMP", 1), ("PUBACK", 2)],
        *[("PUBCOMP", 3), ("PUBACK", 4), ("PUBACK", 5)],
        ("PUBACK", 6),
    ]


def test_a_release_that_a_lost_connection_leaves_owing_holds_nothing_back():
    session = started()
    session.admit([publish(1, 2), publish(2, 1)], [])
    session.suspend()
    session.resume(KEPT, [])
    out: Out = []

    session.admit([publish(2, 1)], out)

    assert packets(out) == [("PUBACK", 2)]


def test_qos_0_publications_pass_without_a_copy():
    session = started()
    publishes = [publish(0, 0), publish(0, 0)]
    out: Out = []

    assert session.admit(publishes, out) is publishes
    assert out == []


def test_a_qos_2_publication_is_seen_once_until_it_is_released():
    session = started()
    out: Out = []

    first = session.admit([publish(7, 2)], out)
    again = session.admit([publish(7, 2, again=True)], out)
    session.on_packet(mqtt5.PubRelPacket(7), out)
    another = session.admit([publish(7, 2)], out)

    assert (len(first), len(again), len(another)) == (1, 0, 1)
    assert [name for name, _ in packets(out)] == [
        "PUBREC",
        "PUBREC",
        "PUBCOMP",
        "PUBREC",
    ]


def test_a_qos_1_publication_is_seen_as_often_as_it_comes():
    session = started()

    assert len(session.admit([publish(7, 1)], [])) == 1
    assert len(session.admit([publish(7, 1)], [])) == 1


@pytest.mark.parametrize(("ack", "seen"), [(KEPT, 0), (NEW, 1)])
def test_seen_identifiers_outlive_a_connection_only_with_their_session(ack, seen):
    session = started()
    session.admit([publish(7, 2)], [])
    number = session.number
    session.suspend()

    session.resume(ack, [])

    assert len(session.admit([publish(7, 2, again=True)], [])) == seen
    assert (session.number > number) == (ack is NEW)


def test_a_restored_broker_s_new_publication_under_a_known_identifier_is_seen():
    session = started()
    session.admit([publish(7, 2)], [])
    session.suspend()
    session.resume(KEPT, [])
    out: Out = []

    assert len(session.admit([publish(7, 2)], out)) == 1
    assert packets(out) == [("PUBREC", 7)]


def test_an_unknown_release_is_answered_so_that_the_broker_can_forget():
    out: Out = []

    started().on_packet(mqtt5.PubRelPacket(9), out)

    assert packets(out) == [("PUBCOMP", 9)]


def test_an_owner_that_acknowledges_itself_still_sees_qos_2_once():
    session = started(acknowledge=False)
    out: Out = []

    assert len(session.admit([publish(1, 2), publish(2, 1)], out)) == 2
    assert out == []
    session.acknowledge(1, 2, out)
    session.acknowledge(2, 1, out)
    assert session.admit([publish(1, 2, again=True)], out) == []

    session.on_packet(mqtt5.PubRelPacket(1), out)
    expected = [("PUBREC", 1), ("PUBREC", 1), ("PUBCOMP", 1), ("PUBACK", 2)]
    assert packets(out) == expected


def test_packets_only_a_client_sends_end_the_connection():
    with pytest.raises(LinkError, match="unexpected SubscribePacket"):
        started().on_packet(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t")]), [])


@given(st.lists(st.tuples(st.integers(1, 20), st.sampled_from([1, 1, 1, 2])), max_size=20))
def test_many_acknowledged_at_once_are_answered_as_one_by_one(packet_ids):
    one_by_one, at_once = started(acknowledge=False), started(acknowledge=False)
    separately: Out = []
    together: Out = []

    for packet_id, qos in packet_ids:
        one_by_one.acknowledge(packet_id, qos, separately)
    at_once.acknowledge_all(packet_ids, together)

    assert b"".join(together) == b"".join(separately)
    assert len(together) <= len(separately)

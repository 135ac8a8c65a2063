"""Which publications a handler sees, and what the broker is answered."""

from pathlib import Path

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import LinkError
from federator.runtime.mqtt.session import MqttSession
from federator.runtime.mqtt.wire import Inbound, Out
from tests.transcripts import play, scenes

NEW = mqtt5.ConnAckPacket(session_present=False)
KEPT = mqtt5.ConnAckPacket(session_present=True)
NAMES = {0x40: "PUBACK", 0x50: "PUBREC", 0x70: "PUBCOMP"}


def started(*, acknowledge: bool = True) -> MqttSession:
    session = MqttSession(queue_bytes_max=1_000, acknowledge=acknowledge)
    session.resume(NEW, [])
    return session


def publish(packet_id: int, qos: int, *, again: bool = False) -> Inbound:
    level, known_as = mqtt5.QoS(qos), packet_id if qos else None
    packet = mqtt5.PublishPacket("t", b"", qos=level, packet_id=known_as, duplicate=again)
    return packet, 0, 10


class Stage:
    """A session, and what a broker does; prints what the session answers.

    ``receive 3/1 7/2dup``: a read with the publication 3 of QoS 1, and 7 of QoS 2 with DUP; prints
    how many the handler sees. ``release 7`` is a PUBREL. ``--owner``: the owner acknowledges.
    """

    def __init__(self):
        self.session = started()

    def do(self, command, *words):
        out: Out = []
        number = self.session.number
        yield from getattr(self, f"_{command}")(out, *words) or ()
        yield from (f"{NAMES[packet[0]]} {int.from_bytes(packet[2:4])}" for packet in out)
        if self.session.number > number:
            yield "a new session"

    def _session(self, out, *how):
        self.session = started(acknowledge="--owner" not in how)

    def _receive(self, out, *publications):
        read = []
        for each in publications:
            packet_id, _, qos = each.removesuffix("dup").partition("/")
            read.append(publish(int(packet_id), int(qos), again=each.endswith("dup")))
        yield f"sees {len(self.session.admit(read, out))}"

    def _release(self, out, packet_id):
        self.session.on_packet(mqtt5.PubRelPacket(int(packet_id)), out)

    def _acknowledge(self, out, publication):
        packet_id, _, qos = publication.partition("/")
        self.session.acknowledge(int(packet_id), int(qos), out)

    def _cut(self, out):
        self.session.suspend()

    def _connect(self, out, *how):
        self.session.resume(KEPT if "--session" in how else NEW, [])


@scenes(Path(__file__).parent / "session.txt")
def test_transcript(path, number):
    play(path, number, Stage())


def test_qos_0_publications_pass_without_a_copy():
    session = started()
    publishes = [publish(0, 0), publish(0, 0)]
    out: Out = []

    assert session.admit(publishes, out) is publishes
    assert out == []


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

"""Frames leave by a neighbour's broker or straight to its agent, and none is lost in between."""

from federator.protocol.data import outgoing as module
from federator.protocol.data.outgoing import DIRECT_TOPIC, URGENT_TOPIC
from federator.protocol.data.unconfirmed import Unconfirmed
from federator.protocol.forwarding.frames import (
    CUSTODY_FLAG,
    KEY_BYTES,
    label_bytes,
    unpack,
)
from federator.runtime.mqtt.wire import inbound_of
from tests.protocol.data.bare_outgoing import N2, TOPIC, bare_outgoing, send_frame

BODY, LONG_BODY = b"0\x04\x00\x01a\x00", b"0\x08\x00\x01a\x00long"
LABEL_BYTES = label_bytes(bytes(KEY_BYTES))


class Wire:
    """A connection that takes everything until it is broken."""

    def __init__(self):
        self.sent = []
        self.broken = False
        self.urgent_bytes = 0
        self.packet_bytes_max = self.packet_bytes_sure = 1 << 28
        self.idle = True

    def write_packets(self, parts, count, *, urgent=False):
        if not self.broken:
            self.sent += [
                (p.topic, unpack(p.payload).seq) for p, _, _ in inbound_of(b"".join(parts))
            ]
        return not self.broken


def outgoing():
    made = bare_outgoing()
    broker, agent = Wire(), Wire()
    made.reach(N2, broker)
    return made, broker, agent


def send(made, seq, *, urgent=False, flags=0, body=BODY):
    return send_frame(made, seq, body, flags=flags, urgent=urgent)


def test_frames_go_straight_while_the_agent_is_connected():
    made, broker, agent = outgoing()
    send(made, 1)
    made.go_direct(N2, agent, Unconfirmed(10_000))
    send(made, 2)
    send(made, 3, urgent=True)

    assert broker.sent == [(TOPIC, 1)]
    assert agent.sent == [(DIRECT_TOPIC, 2), (URGENT_TOPIC, 3)]


def test_what_is_not_confirmed_goes_by_the_broker_before_what_follows():
    made, broker, agent = outgoing()
    sent = Unconfirmed(10_000)
    made.go_direct(N2, agent, sent)
    for seq in (1, 2, 3):
        send(made, seq)
    sent.confirm(1, 0)

    again = made.go_by_broker(N2)
    send(made, 4)

    assert again == 2
    assert broker.sent == [(TOPIC, 2), (TOPIC, 3), (TOPIC, 4)]
    assert made.go_by_broker(N2) == 0
    assert made.counters.frames_out == 4  # each counts once


def test_a_frame_that_meets_a_broken_connection_goes_by_the_broker_at_once():
    made, broker, agent = outgoing()
    made.go_direct(N2, agent, Unconfirmed(10_000))
    send(made, 1)
    agent.broken = True

    assert send(made, 2) == 1
    assert broker.sent == [(TOPIC, 1), (TOPIC, 2)]
    assert made.counters.dropped == 0


def test_an_agent_that_confirms_nothing_gets_no_more_than_is_kept_for_it():
    made, broker, agent = outgoing()
    made.go_direct(N2, agent, Unconfirmed(1))

    counts = [send(made, 1), send(made, 2), send(made, 3, flags=CUSTODY_FLAG)]

    assert counts == [1, 0, 0]
    assert made.counters.dropped == 1
    assert made.counters.deferred == 1
    assert broker.sent == []


def test_a_new_connection_to_the_broker_does_not_end_a_straight_one():
    made, broker, agent = outgoing()
    made.go_direct(N2, agent, Unconfirmed(10_000))
    other = Wire()
    made.reach(N2, other)
    send(made, 1)
    made.go_by_broker(N2)

    assert agent.sent == [(DIRECT_TOPIC, 1)]
    assert (broker.sent, other.sent) == ([], [(TOPIC, 1)])


def test_a_neighbour_that_is_gone_gets_nothing_by_any_way():
    made, broker, agent = outgoing()
    made.go_direct(N2, agent, Unconfirmed(10_000))
    made.reach(N2, None)

    assert send(made, 1) == 0
    assert made.go_by_broker(N2) == 0
    assert (broker.sent, agent.sent) == ([], [])


def test_a_frame_that_is_too_long_for_an_agent_goes_by_the_broker_and_changes_nothing(
    monkeypatch,
):
    monkeypatch.setattr(module, "DIRECT_BYTES_MAX", LABEL_BYTES + len(BODY))
    made, broker, agent = outgoing()
    made.go_direct(N2, agent, Unconfirmed(10_000))
    send(made, 1, body=LONG_BODY)
    send(made, 2)

    assert broker.sent == [(TOPIC, 1)]
    assert agent.sent == [(DIRECT_TOPIC, 2)]

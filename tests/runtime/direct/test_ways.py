"""Frames leave by a neighbour's broker or straight to its agent, and none is lost in between."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from federator.config.settings import Settings
from federator.config.validation import validated
from federator.protocol.forwarding.frames import (
    CUSTODY_FLAG,
    KEY_BYTES,
    label_bytes,
    unpack,
)
from federator.protocol.types import Epoch
from federator.runtime.direct import service as module
from federator.runtime.direct.service import DirectLinks
from federator.runtime.direct.wire import DIRECT_TOPIC, URGENT_TOPIC
from federator.runtime.mqtt.wire import inbound_of
from tests.protocol.data.bare_outgoing import N2, TOPIC, bare_outgoing, send_frame

BODY, LONG_BODY = b"0\x04\x00\x01a\x00", b"0\x08\x00\x01a\x00long"
LABEL_BYTES = label_bytes(bytes(KEY_BYTES))


class Wire:
    """A connection that takes everything until it is broken."""

    endpoint = SimpleNamespace(place="there")
    counters = SimpleNamespace(bytes_out=0)

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


class Straight(DirectLinks):
    """Links to agents, without a port, whose only connection is given."""

    def connect(self, agent, *, room=10_000):
        self.on_neighbour(N2, True)
        self.peer = peer = self.peers[N2]
        peer.link = agent
        links = replace(self.settings.links, send_queue_bytes_max=room)
        self.settings = replace(self.settings, links=links)
        peer.on_up(agent, False)
        self.sent = peer.sent

    def lose(self):
        self.peer.on_down(self.peer.link, "gone")


@pytest.fixture
def lines():
    """What leaves, with links to agents; the neighbour's broker and its agent."""
    made = bare_outgoing()
    broker, agent = Wire(), Wire()
    made.by_broker.reach(N2, broker)
    config = {
        "security": "open",
        "broker": {"id": 1, "url": "mqtt://127.0.0.1:1"},
        "links": {"transport": "direct"},
        "direct": {"listen": "127.0.0.1:0"},
    }
    straight = Straight(
        settings=validated(Settings, config),
        trust=None,
        tasks=None,
        epoch=lambda: Epoch(1),
        tell=lambda neighbour, offer: None,
        on_frames=lambda neighbour, frames: None,
        by_broker=made.by_broker,
    )
    made.transports.all.append(straight)
    yield made, straight, broker, agent
    straight.port.close()


def send(made, seq, *, urgent=False, flags=0, body=BODY):
    return send_frame(made, seq, body, flags=flags, urgent=urgent)


def test_frames_go_straight_while_the_agent_is_connected(lines):
    made, straight, broker, agent = lines
    send(made, 1)
    straight.connect(agent)
    send(made, 2)
    send(made, 3, urgent=True)

    assert broker.sent == [(TOPIC, 1)]
    assert agent.sent == [(DIRECT_TOPIC, 2), (URGENT_TOPIC, 3)]


def test_what_is_not_confirmed_goes_by_the_broker_before_what_follows(lines):
    made, straight, broker, agent = lines
    straight.connect(agent)
    for seq in (1, 2, 3):
        send(made, seq)
    straight.sent.confirm(1, 0)

    straight.lose()
    send(made, 4)

    assert straight.counters().by_broker == 2
    assert broker.sent == [(TOPIC, 2), (TOPIC, 3), (TOPIC, 4)]
    assert not straight.carries(N2)
    assert made.counters.frames_out == 4  # each counts once


def test_a_frame_that_meets_a_broken_connection_goes_by_the_broker_at_once(lines):
    made, straight, broker, agent = lines
    straight.connect(agent)
    send(made, 1)
    agent.broken = True

    assert send(made, 2) == 1
    assert broker.sent == [(TOPIC, 1), (TOPIC, 2)]
    assert made.counters.dropped == 0


def test_an_agent_that_confirms_nothing_gets_no_more_than_is_kept_for_it(lines):
    made, straight, broker, agent = lines
    straight.connect(agent, room=1)

    counts = [send(made, 1), send(made, 2), send(made, 3, flags=CUSTODY_FLAG)]

    assert counts == [1, 0, 0]
    assert made.counters.dropped == 1
    assert made.counters.deferred == 1
    assert broker.sent == []


def test_a_new_connection_to_the_broker_does_not_end_a_straight_one(lines):
    made, straight, broker, agent = lines
    straight.connect(agent)
    other = Wire()
    made.by_broker.reach(N2, other)
    send(made, 1)
    straight.lose()

    assert agent.sent == [(DIRECT_TOPIC, 1)]
    assert (broker.sent, other.sent) == ([], [(TOPIC, 1)])


def test_a_neighbour_that_is_gone_gets_nothing_by_any_way(lines):
    made, straight, broker, agent = lines
    straight.connect(agent)
    made.by_broker.reach(N2, None)

    assert send(made, 1) == 0
    straight.on_neighbour(N2, False)
    assert (broker.sent, agent.sent) == ([], [])


def test_a_frame_that_is_too_long_for_an_agent_goes_by_the_broker_and_changes_nothing(
    monkeypatch, lines
):
    monkeypatch.setattr(module, "FRAME_BYTES_MAX", LABEL_BYTES + len(BODY))
    made, straight, broker, agent = lines
    straight.connect(agent)
    send(made, 1, body=LONG_BODY)
    send(made, 2)

    assert broker.sent == [(TOPIC, 1)]
    assert agent.sent == [(DIRECT_TOPIC, 2)]

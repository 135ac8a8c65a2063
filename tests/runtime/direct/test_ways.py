"""Frames leave by a neighbour's broker or straight to its agent, and none is lost in between."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from federator.config.settings import Settings
from federator.config.validation import validated
from federator.protocol.data.transports import Transports
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
from tests.transcripts import play, scenes

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


class Stage:
    """Frames for neighbour 2, whose broker is connected, and whose agent is after ``connect``.

    ``send`` sends frames by number: ``3,urgent``, ``4,custody``, ``5,long``. ``breaks`` is the
    connection to the agent, and ``lost`` that this is noticed; ``another`` is a new connection to
    the broker. Prints where each frame goes, and the counters that changed.
    """

    def __init__(self, monkeypatch):
        transports, self.monkeypatch = Transports(), monkeypatch
        self.made = bare_outgoing(transports)
        self.wires = {"broker": Wire(), "agent": Wire()}
        self.made.by_broker.reach(N2, self.wires["broker"])
        config = {
            "security": "open",
            "broker": {"id": 1, "url": "mqtt://127.0.0.1:1"},
            "links": {"transport": "direct"},
            "direct": {"listen": "127.0.0.1:0"},
        }
        self.straight = Straight(
            settings=validated(Settings, config),
            trust=None,
            tasks=None,
            epoch=lambda: Epoch(1),
            tell=lambda neighbour, offer: None,
            on_frames=lambda neighbour, frames: None,
            by_broker=self.made.by_broker,
        )
        transports.all.append(self.straight)

    def do(self, command, *words):
        before, counts = {name: len(wire.sent) for name, wire in self.wires.items()}, self._counts()
        getattr(self, f"_{command}")(*words)
        for name, wire in self.wires.items():
            for topic, seq in wire.sent[before.get(name, 0) :]:
                sort = {TOPIC: "", DIRECT_TOPIC: "", URGENT_TOPIC: " as urgent"}[topic]
                yield f"{seq} to the {name}{sort}"
        for name, count in self._counts().items():
            if count != counts[name]:
                yield f"{name} {count}"

    def close(self):
        self.straight.port.close()

    def _counts(self):
        found = self.made.counters
        counts = {"out": found.frames_out, "dropped": found.dropped, "deferred": found.deferred}
        used = "yes" if self.straight.carries(N2) else "no"
        return counts | {"again": self.straight.counters().by_broker, "direct": used}

    def _connect(self, room="10000"):
        self.straight.connect(self.wires["agent"], room=int(room))

    def _send(self, *frames):
        for frame in frames:
            seq, *how = frame.split(",")
            body, flags = LONG_BODY if "long" in how else BODY, CUSTODY_FLAG * ("custody" in how)
            send_frame(self.made, int(seq), body, flags=flags, urgent="urgent" in how)

    def _confirm(self, count):
        self.straight.sent.confirm(int(count), 0)

    def _breaks(self):
        self.wires["agent"].broken = True

    def _lost(self):
        self.straight.lose()

    def _another(self):
        self.wires["other broker connection"] = Wire()
        self.made.by_broker.reach(N2, self.wires["other broker connection"])

    def _gone(self):
        self.made.by_broker.reach(N2, None)

    def _link_down(self):
        self.straight.on_neighbour(N2, False)

    def _short(self):
        self.monkeypatch.setattr(module, "FRAME_BYTES_MAX", LABEL_BYTES + len(BODY))


@scenes(Path(__file__).with_name("ways.txt"))
def test_transcript(path, number, monkeypatch):
    with closing(Stage(monkeypatch)) as stage:
        play(path, number, stage)

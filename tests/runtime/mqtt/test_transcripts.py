"""The window of unacknowledged messages, packet by packet."""

from pathlib import Path

import mqtt5

from federator.runtime.mqtt.window import BrokerLimits
from tests.runtime.mqtt.test_window import PACKET_BYTES_MAX, message, new_window, told
from tests.transcripts import play, scenes


class Stage:
    """A window, and of the broker what a command says; prints what is sent, and what changed.

    ``offer 3 qos2 other`` offers the message 3 on a topic (``t`` else); the acknowledgements name
    identifiers: ``puback 1``, ``pubrec 1 0x97``, ``pubcomp 1``. ``3/2 qos1 dup`` is message 3
    under the identifier 2, ``release 2`` its PUBREL.
    """

    def __init__(self):
        self._window("2000")

    def do(self, command, *words):
        before, out = self._state(), []
        self.refused.clear()
        self.answers.clear()
        yield from getattr(self, f"_{command}")(out, *words) or ()
        yield from sent(out)
        yield from (f"refused on {topic}: {reason:#04x}" for topic, reason in self.refused)
        yield from (f"answered {reason:#04x}" for reason in self.answers)
        yield from (f"{n} {v}" for n, v in self._state().items() if before[n] != v)

    def _window(self, *bounds):
        self.window, self.ids = new_window(int(bounds[-1]))
        self.refused = told(self.window)
        self.answers = []

    def _connect(self, out, receive_max, *how):
        """``--session``: the broker has it; ``--died``: it may have been killed; ``--qos=1``."""
        granted = next((int(word[-1]) for word in how if word.startswith("--qos")), 2)
        limits = BrokerLimits(int(receive_max), PACKET_BYTES_MAX, granted, True)
        had, died = "--session" in how, "--died" in how
        self.window.resume(limits, session_present=had, out=out, died=died)

    def _offer(self, out, number, qos, topic="t", size="4"):
        offered = message(int(number), int(qos[-1]), int(size), topic)
        if not self.window.offer(*offered, out, self.answers.append):
            yield "too much"

    def _cut(self, out):
        self.window.suspend()

    def _puback(self, out, packet_id, reason="0"):
        self.window.on_acknowledged(int(packet_id), int(reason, 16), out, qos=1)

    def _pubrec(self, out, packet_id, reason="0"):
        self.window.on_received(int(packet_id), int(reason, 16), out)

    def _pubcomp(self, out, packet_id, reason="0"):
        self.window.on_acknowledged(int(packet_id), int(reason, 16), out, qos=2)

    def _try_again(self, out):
        self.window.try_again(out)

    def _state(self):
        window = self.window
        return {
            "in flight": window.in_flight,
            "waiting": window.waiting,
            "settled through": window.settled_through,
            "bytes": window.bytes,
            "identifiers": len(self.ids) - window.in_flight,
        }


def sent(out):
    for raw in out:
        packet, _ = mqtt5.read(memoryview(bytes(raw)))
        if isinstance(packet, mqtt5.PubRelPacket):
            reason = int(packet.reason_code)
            yield f"release {packet.packet_id}" + (f" {reason:#04x}" if reason else "")
        else:
            number = int.from_bytes(packet.payload[:4], "big")
            place = f"/{packet.packet_id} qos{int(packet.qos)}" if packet.packet_id else " qos0"
            yield f"{number}{place}{' dup' if packet.duplicate else ''}"


@scenes(Path(__file__).parent / "window.txt")
def test_transcript(path, number):
    play(path, number, Stage())

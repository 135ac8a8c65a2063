"""Copies of frames on their way to neighbours: by their brokers, or in datagrams.

Which neighbours get a frame is decided elsewhere. Here each copy is labelled for its next hop,
sealed, and handed to whoever carries it; what nobody takes is counted. A neighbour whose queue
refused something gets frames under custody sparingly (``clogged``).

Source: design section 3.4; docs/protocol.md section 8.
"""

import time
from collections.abc import Sequence

from federator.protocol.forwarding import Sends
from federator.protocol.frames import CUSTODY_FLAG, Frame, mask_bytes, pack_label, unpack
from federator.protocol.link_gates import LinkGates
from federator.protocol.publications import variable_byte_integer
from federator.protocol.trust.guard import DATA
from federator.protocol.types import BrokerId
from federator.runtime.clogged import Clogged
from federator.runtime.custody import REPAIR_BACKLOG_BYTES_MAX
from federator.runtime.data_counters import DataCounters
from federator.runtime.data_ports import Datagrams, DataLink
from federator.runtime.metrics_stream.tape import Refused, Sent, Tape
from federator.runtime.trust import Trust


class Outgoing:
    """What leaves one agent for its neighbours.

    Args:
        self_id: Our id.
        topic: On which neighbours' brokers take frames.
        counters: Of the data path.
        gates: What may cross the link to a neighbour.
        trust: Seals frames; ``None`` in an open federation.
        tape: What happens is written down here, copy by copy.

    Attributes:
        datagrams: Carries frames past the brokers, if anybody does.
    """

    def __init__(
        self,
        *,
        self_id: BrokerId,
        topic: str,
        counters: DataCounters,
        gates: LinkGates,
        trust: Trust | None,
        tape: Tape | None,
    ) -> None:
        self.datagrams: Datagrams | None = None
        self._self_id = self_id
        self._topic_field = len(topic.encode()).to_bytes(2, "big") + topic.encode()
        self._counters = counters
        self._gates = gates
        self._trust = trust
        self._tape = tape
        self._links: dict[BrokerId, DataLink] = {}
        self._clogged = Clogged()

    def reach(self, neighbour: BrokerId, link: DataLink | None) -> None:
        """Send what is meant for ``neighbour`` over ``link``; ``None``: it cannot be reached."""
        if link is None:
            self._links.pop(neighbour, None)
        else:
            self._links[neighbour] = link

    def send(
        self,
        frame: Frame,
        hops: int,
        sends: Sends,
        parts: Sequence[bytes | memoryview],
        size: int,
        *,
        urgent: bool = False,
    ) -> int:
        """Send copies of ``frame`` to the next hops; return publications sent, of all copies."""
        sent, count, whole = 0, frame.publications, (frame, parts, size)
        for hop, mask in sends:
            if self._gates.active:
                frame, parts, size = whole
                let_out = self._gates.outgoing(hop, frame, parts)
                if let_out is None:
                    continue
                if let_out is not frame:
                    frame, parts, size = let_out, (let_out.body,), len(let_out.body)
                count = frame.publications
            link = self._links.get(hop)
            if link is None:
                self._note_unsent(frame, hop)
                continue
            if (
                frame.flags & CUSTODY_FLAG
                and not urgent
                and self._clogged
                and self._clogged.keeps_out(hop, idle=link.idle, now_s=time.monotonic())
            ):
                self._note_unsent(frame, hop)
                continue
            label = pack_label(frame, hops=hops, sender=self._self_id, mask=mask)
            content: tuple[bytes | memoryview, ...] = (label, *parts)
            content_bytes = len(label) + size
            if self.datagrams is not None and not urgent and self.datagrams.send(hop, content):
                sent += count
                self._note_sent(hop, count, content_bytes, content_bytes)
                continue
            if self._trust is not None:
                sealed = self._trust.guard.seal(DATA, "data", b"".join(content), hop)
                if sealed is None:
                    self._note_unsent(frame, hop)
                    continue
                content, content_bytes = (sealed,), len(sealed)
            if link.write_packets(self._packet(content, content_bytes), 1, urgent=urgent):
                sent += count
                self._note_sent(hop, count, content_bytes, len(label) + size)
            else:
                self._note_unsent(frame, hop)
                self._clogged.refused(hop, now_s=time.monotonic())
        return sent

    def send_repair(self, neighbour: BrokerId, frame: Frame) -> bool:
        """Send a repair to a neighbour, unless many wait to be sent there already."""
        link = self._links.get(neighbour)
        if link is None or link.urgent_bytes > REPAIR_BACKLOG_BYTES_MAX:
            return False
        sends = ((neighbour, mask_bytes(frame.mask, frame.k)),)
        parts, size = (frame.body,), len(frame.body)
        self._clogged.repaired(neighbour, now_s=time.monotonic())
        before = self._counters.frames_out
        self.send(frame, frame.hops, sends, parts, size, urgent=True)
        return self._counters.frames_out > before

    def send_by_broker(self, neighbour: BrokerId, frame: bytes) -> None:
        """Send a frame that datagrams carried in vain, and that was counted as sent."""
        link = self._links.get(neighbour)
        sealed: bytes | None = frame
        if self._trust is not None:
            sealed = self._trust.guard.seal(DATA, "data", frame, neighbour)
        taken = False
        if link is not None and sealed is not None:
            taken = link.write_packets(self._packet((sealed,), len(sealed)), 1)
        if not taken:
            self._note_unsent(unpack(frame), neighbour)

    def _packet(
        self, content: tuple[bytes | memoryview, ...], size: int
    ) -> tuple[bytes | memoryview, ...]:
        """A PUBLISH of QoS 0, in pieces."""
        field = self._topic_field
        return (b"\x30", variable_byte_integer(len(field) + 1 + size), field, b"\0", *content)

    def _note_sent(self, hop: BrokerId, count: int, size: int, unsealed_size: int) -> None:
        self._counters.frames_out += 1
        self._counters.frame_bytes_out += size
        if self._tape is not None:
            self._tape.add(Sent(hop, count, unsealed_size))

    def _note_unsent(self, frame: Frame, hop: BrokerId) -> None:
        if self._tape is not None:
            self._tape.add(Refused(hop, frame.publications, frame.flags > 0))
        if frame.flags:
            self._counters.deferred += frame.publications
        else:
            self._counters.dropped += frame.publications

"""Copies of frames for neighbours.

Which neighbours get a frame is decided elsewhere. Here each copy is labelled for its next hop and
given to the first transport that takes it, at last the broker's; copies that none accepts are
counted.

The log of the origin has every frame under custody, and a receiver that misses one asks for it. On
a congested link a frame that joins the queue is worse than useless: it arrives behind a gap, cannot
be delivered, and what would close the gap shares the link with it. With a queue always full,
nothing at all would be delivered while the link carries all it can. So once a queue has refused
something, frames under custody are kept out of it, except one now and then, which shows the other
end how far the origin is. What the other end then asks for has the link nearly to itself, and comes
in order. When the other end has everything it knows of, and asks for nothing more, the link gets
all frames again.

Source: docs/protocol.md section 8; docs/guarantees.md, "Flow control".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from federator.protocol.data.by_broker import ByBroker
from federator.protocol.data.features import Features
from federator.protocol.data.ports import Backlog
from federator.protocol.forwarding.bundles import frames_of, pack_bundle, runs_of
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.forwarding.forwarding import Sends
from federator.protocol.forwarding.frames import CUSTODY_FLAG, Frame, mask_bytes, pack_label
from federator.protocol.telemetry.frame_events import Refused, Sent
from federator.protocol.types import BrokerId, Millis

REPAIR_BACKLOG_BYTES_MAX = 262_144
"""Repairs wait until a connection has less of them to send than this."""

QUIET_MS = Millis(1_000)
"""A link is trusted when nothing has waited, or been asked for again, for so long."""

SIGN_GAP_MS = Millis(2_000)
"""The gap between two frames that are sent in spite of congestion; more than ``QUIET_MS``."""


@dataclass(slots=True)
class _Congested:
    """When a neighbour's link was last busy, and when a frame may be sent nevertheless."""

    busy_ms: Millis
    next_sign_ms: Millis = Millis(0)


class CongestionControl:
    """The neighbours with queues that were full lately."""

    def __init__(self) -> None:
        self._congested: dict[BrokerId, _Congested] = {}

    def refused(self, neighbour: BrokerId, *, now_ms: Millis) -> None:
        """The queue to ``neighbour`` had no room."""
        self._congested.setdefault(neighbour, _Congested(now_ms)).busy_ms = now_ms

    def repaired(self, neighbour: BrokerId, *, now_ms: Millis) -> None:
        """A requested repair is sent to ``neighbour``."""
        congested = self._congested.get(neighbour)
        if congested is not None:
            congested.busy_ms = now_ms

    def keeps_out(self, neighbour: BrokerId, *, idle: bool, now_ms: Millis) -> bool:
        """Whether a frame that is in its origin's log should not be sent to ``neighbour`` now.

        Args:
            idle: Nothing waits to be sent there.
        """
        congested = self._congested.get(neighbour)
        if congested is None:
            return False
        if not idle:
            congested.busy_ms = now_ms
            return True
        if now_ms - congested.busy_ms > QUIET_MS:
            del self._congested[neighbour]
            return False
        if now_ms >= congested.next_sign_ms:
            congested.next_sign_ms = Millis(now_ms + SIGN_GAP_MS)
            return False
        return True

    def __bool__(self) -> bool:
        return bool(self._congested)


@dataclass(frozen=True, slots=True)
class Leaving:
    """A frame to be sent with others: its label, body and next hops."""

    frame: Frame
    hops: int  # links that it travelled so far
    sends: Sends
    parts: Sequence[bytes | memoryview]
    size: int  # of ``parts``


class Outgoing:
    """What one agent sends to its neighbours; ``topic`` is that of frames on their brokers."""

    def __init__(
        self, self_id: BrokerId, topic: str, counters: DataCounters, features: Features
    ) -> None:
        self._self_id, self.counters = self_id, counters
        self.policies, self._transports = features.policies, features.transports
        self._frame_events = features.frame_events
        self.by_broker = ByBroker(
            self_id=self_id, topic=topic, seals=features.seals, lost=self._note_lost
        )
        self._past_brokers = self._transports.all
        self._take_bundles = self.by_broker.take_bundles
        self._links = self.by_broker.links
        self._congestion = CongestionControl()

    def reaches(self, neighbour: BrokerId) -> bool:
        return neighbour in self._links

    def _queue_to(self, neighbour: BrokerId) -> Backlog | None:
        by_broker = self._links.get(neighbour)
        return by_broker and (self._transports.queue_to(neighbour) or by_broker)

    def send(
        self,
        frame: Frame,
        hops: int,
        sends: Sends,
        parts: Sequence[bytes | memoryview],
        size: int,
        *,
        now_ms: Millis,
        urgent: bool = False,
    ) -> int:
        """Send copies of ``frame`` to the next hops; return publications sent, of all copies."""
        sent = 0
        for hop, mask in sends:
            admitted = self._admit(hop, frame, parts, size, now_ms=now_ms, urgent=urgent)
            if admitted is not None:
                let_out, pieces, length = admitted
                label = pack_label(let_out, hops=hops, sender=self._self_id, mask=mask)
                length += len(label)
                sent += self._carry(
                    hop, (let_out,), (length,), (label, *pieces), now_ms=now_ms, urgent=urgent
                )
        return sent

    def send_bundle(self, leaving: Sequence[Leaving], *, now_ms: Millis) -> int:
        """Send frames of one bundle to their next hops, to each all of its frames at once.

        Returns:
            Publications sent, of all copies.
        """
        by_hop: dict[BrokerId, list[tuple[Leaving, bytes]]] = {}
        for entry in leaving:
            for hop, mask in entry.sends:
                by_hop.setdefault(hop, []).append((entry, mask))
        sent = 0
        for hop, share in by_hop.items():
            frames: list[Frame] = []
            packed: list[tuple[tuple[bytes | memoryview, ...], int]] = []
            for entry, mask in share:
                admitted = self._admit(
                    hop, entry.frame, entry.parts, entry.size, now_ms=now_ms, urgent=False
                )
                if admitted is not None:
                    frame, pieces, length = admitted
                    label = pack_label(frame, hops=entry.hops, sender=self._self_id, mask=mask)
                    frames.append(frame)
                    packed.append(((label, *pieces), len(label) + length))
            # A link policy may have removed everything but the label of a frame.
            whole = all(frame.publications for frame in frames)
            if len(frames) > 1 and whole and hop in self._take_bundles:
                head, *content = pack_bundle(packed, runs_of(frames))
                lengths = [length for _, length in packed]
                lengths[0] += len(head)
                sent += self._carry(hop, frames, lengths, (head, *content), now_ms=now_ms)
                continue
            for frame, (content_of_one, length) in zip(frames, packed, strict=True):
                sent += self._carry(hop, (frame,), (length,), content_of_one, now_ms=now_ms)
        return sent

    def _admit(
        self,
        hop: BrokerId,
        frame: Frame,
        parts: Sequence[bytes | memoryview],
        size: int,
        *,
        now_ms: Millis,
        urgent: bool,
    ) -> tuple[Frame, Sequence[bytes | memoryview], int] | None:
        """What of ``frame`` goes to ``hop`` now: frame, body and length; ``None``: nothing."""
        if self.policies.active:
            let_out = self.policies.outgoing(hop, frame, parts)
            if let_out is None:
                return None
            if let_out is not frame:
                frame, parts, size = let_out, (let_out.body,), len(let_out.body)
        if hop not in self._links:
            self._note_unsent(frame, hop)
            return None
        if (
            # The origin's log has it, and a receiver that misses it asks: better than joining the
            # queue.
            frame.flags & CUSTODY_FLAG
            and not urgent
            and self._congestion
            and self._is_kept_out(hop, now_ms)
        ):
            self._note_unsent(frame, hop)
            return None
        return frame, parts, size

    def _is_kept_out(self, hop: BrokerId, now_ms: Millis) -> bool:
        """Whether a frame that is in its origin's log should not join a queue that was full."""
        queue = self._queue_to(hop)
        idle = queue is None or queue.idle
        return self._congestion.keeps_out(hop, idle=idle, now_ms=now_ms)

    def _carry(
        self,
        hop: BrokerId,
        frames: Sequence[Frame],
        lengths: Sequence[int],
        content: Sequence[bytes | memoryview],
        *,
        now_ms: Millis,
        urgent: bool = False,
    ) -> int:
        """Send ``content``, one frame or a bundle of ``frames``, to ``hop``.

        ``lengths`` are those of the frames in ``content``. Returns the publications sent.
        """
        size = sum(lengths)
        for transport in self._past_brokers:
            sent = transport.send(hop, content, size, urgent=urgent)
            if sent is not None:
                break
        else:
            sent = self.by_broker.send(hop, content, size, urgent=urgent)
        if sent:
            return self._note_all_sent(frames, lengths, hop, sent)
        for frame in frames:
            self._note_unsent(frame, hop)
        if sent is not None:
            self._congestion.refused(hop, now_ms=now_ms)
        return 0

    def send_repair(self, neighbour: BrokerId, frame: Frame, *, now_ms: Millis) -> bool:
        """Send a repair to a neighbour, unless many wait to be sent there already."""
        queue = self._queue_to(neighbour)
        if queue is None or queue.urgent_bytes > REPAIR_BACKLOG_BYTES_MAX:
            return False
        sends = ((neighbour, mask_bytes(frame.mask, frame.k)),)
        parts, size = (frame.body,), len(frame.body)
        self._congestion.repaired(neighbour, now_ms=now_ms)
        before = self.counters.frames_out
        self.send(frame, frame.hops, sends, parts, size, now_ms=now_ms, urgent=True)
        return self.counters.frames_out > before

    def _note_all_sent(
        self, frames: Sequence[Frame], lengths: Sequence[int], hop: BrokerId, size: int
    ) -> int:
        """Count ``frames`` as sent, in ``size`` bytes; return the publications in them."""
        publications = sum(frame.publications for frame in frames)
        self.counters.frames_out += len(frames)
        self.counters.copies_out += publications
        self.counters.frame_bytes_out += size
        if self._frame_events is not None:
            for frame, length in zip(frames, lengths, strict=True):
                sent = Sent(
                    hop, frame.publications, length,
                    frame.flags, frame.origin, frame.epoch, frame.seq,
                )  # fmt: skip
                self._frame_events.add(sent)
        return publications

    def _note_lost(self, hop: BrokerId, frame: bytes) -> None:
        """Count a frame, or a bundle, that was counted as sent, and could not be."""
        for lost, _ in frames_of(frame):
            self._note_unsent(lost, hop)

    def _note_unsent(self, frame: Frame, hop: BrokerId) -> None:
        if self._frame_events is not None:
            refused = Refused(
                hop, frame.publications, frame.flags > 0,
                frame.flags, frame.origin, frame.epoch, frame.seq,
            )  # fmt: skip
            self._frame_events.add(refused)
        if frame.flags:
            self.counters.deferred += frame.publications
        else:
            self.counters.dropped += frame.publications

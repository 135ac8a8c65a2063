"""Copies of frames for neighbours: through their brokers, directly to agents, or in datagrams.

Which neighbours get a frame is decided elsewhere. Here each copy is labelled for its next hop,
sealed, and sent by the way in use; copies that no way accepts are counted.

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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from federator.protocol.data.ports import Datagrams, FrameLink, Seals
from federator.protocol.data.unconfirmed import Unconfirmed
from federator.protocol.forwarding.bundles import frames_of, pack_bundle, runs_of
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.forwarding.forwarding import Sends
from federator.protocol.forwarding.frames import CUSTODY_FLAG, Frame, mask_bytes, pack_label
from federator.protocol.forwarding.parts import PART_BYTES_MIN, cut
from federator.protocol.forwarding.publications import variable_byte_integer
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.telemetry.frame_events import FrameEventSink, Refused, Sent
from federator.protocol.trust.guard import DATA, SEAL_BYTES
from federator.protocol.types import BrokerId, Millis

REPAIR_BACKLOG_BYTES_MAX = 262_144
"""Repairs wait until a connection has less of them to send than this."""

PUBLISH_BYTES, PUBLISH_BYTES_MAX = 5, 8
"""The size of a PUBLISH around a frame: its first byte, its length in mostly three bytes, and no
properties; at most a packet identifier, too.
"""

QUIET_MS = Millis(1_000)
"""A link is trusted when nothing has waited, or been asked for again, for so long."""

SIGN_GAP_MS = Millis(2_000)
"""The gap between two frames that are sent in spite of congestion; more than ``QUIET_MS``."""


DIRECT_BYTES_MAX = 15 * 1024 * 1024
"""Longer frames go through the broker, which announces its limit."""

PART_NUMBERS = 1 << 32

DIRECT_TOPIC, URGENT_TOPIC = "d", "u"
"""What a PUBLISH to a neighbour's agent has in place of a topic: the sort of its frame. Each
connection counts frames by sort.
"""


@dataclass(slots=True)
class _Congested:
    """When a neighbour's link was last busy, and when a frame may be sent nevertheless."""

    busy_ms: Millis
    next_sign_ms: Millis = Millis(0)


class CongestionControl:
    """The neighbours whose queues were full lately."""

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


@dataclass(eq=False, slots=True)
class _Trial:
    """Runs ``give_up`` once if the broker refuses a frame, or a part of it, for its length."""

    give_up: Callable[[], None]
    over: bool = False

    def __call__(self) -> None:
        if not self.over:
            self.over = True
            self.give_up()


@dataclass(kw_only=True, eq=False)
class Outgoing:
    """What one agent sends to its neighbours, as PUBLISHes on ``topic`` of their brokers."""

    self_id: BrokerId
    topic: str
    counters: DataCounters
    policies: LinkPolicies
    seals: Seals | None
    frame_events: FrameEventSink | None
    datagrams: Datagrams | None

    def __post_init__(self) -> None:
        self._topic_field = _topic_field(self.topic)
        self._links: dict[BrokerId, FrameLink] = {}  # in use
        self._by_broker: dict[BrokerId, FrameLink] = {}  # to the brokers of neighbours
        # Of neighbours whose agents are used directly.
        self._direct: dict[BrokerId, Unconfirmed] = {}
        self._own_topics: dict[BrokerId, bytes] = {}  # of neighbours that have another topic
        self._take_bundles: set[BrokerId] = set()  # neighbours that support bundles
        self._congestion = CongestionControl()
        self._cut = 0  # how often something was cut into parts

    def reach(
        self, neighbour: BrokerId, link: FrameLink | None, *, takes_bundles: bool = False
    ) -> None:
        """Send what is for ``neighbour`` over ``link``; ``None``: it cannot be reached."""
        self._take_bundles.discard(neighbour)
        if link is None:
            for ways in (self._links, self._by_broker, self._direct):
                ways.pop(neighbour, None)
            return
        if takes_bundles:
            self._take_bundles.add(neighbour)
        self._by_broker[neighbour] = link
        if neighbour not in self._direct:
            self._links[neighbour] = link

    def reaches(self, neighbour: BrokerId) -> bool:
        return neighbour in self._links

    def go_direct(self, neighbour: BrokerId, link: FrameLink, sent: Unconfirmed) -> None:
        """Send what is for ``neighbour`` directly to its agent over ``link`` from now on.

        Only what ``sent`` has room for is sent; ``link`` refuses nothing unless it is broken.
        """
        self._links[neighbour], self._direct[neighbour] = link, sent

    def go_by_broker(self, neighbour: BrokerId) -> int:
        """Send through its broker again, first everything that its agent has not confirmed.

        Returns:
            How many frames are sent once more.
        """
        sent = self._direct.pop(neighbour, None)
        if sent is None:
            return 0
        self._links[neighbour] = self._by_broker[neighbour]
        frames = sent.take_back()
        for frame in frames:
            self.send_by_broker(neighbour, frame)
        return len(frames)

    def publish_on(self, neighbour: BrokerId, topic: str | None) -> None:
        """Publish for ``neighbour`` on ``topic``; ``None``: as for all others."""
        self._own_topics.pop(neighbour, None)
        if topic not in (None, self.topic):
            self._own_topics[neighbour] = _topic_field(topic)

    @property
    def overhead_bytes(self) -> int:
        """What a frame takes on its link beside label and body: the PUBLISH around it, its seal."""
        return PUBLISH_BYTES + len(self._topic_field) + self._seal_bytes

    @property
    def _seal_bytes(self) -> int:
        return SEAL_BYTES if self.seals is not None else 0

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
                label = pack_label(let_out, hops=hops, sender=self.self_id, mask=mask)
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
                    label = pack_label(frame, hops=entry.hops, sender=self.self_id, mask=mask)
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
        link = self._links.get(hop)
        if link is None:
            self._note_unsent(frame, hop)
            return None
        if (
            # The origin's log has it, and a receiver that misses it asks: better than joining the
            # queue.
            frame.flags & CUSTODY_FLAG
            and not urgent
            and self._congestion
            and self._congestion.keeps_out(hop, idle=link.idle, now_ms=now_ms)
        ):
            self._note_unsent(frame, hop)
            return None
        return frame, parts, size

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
        """Send ``content``, one frame or a bundle of ``frames``, to ``hop`` by the way in use.

        ``lengths`` are those of the frames in ``content``. Returns the publications sent.
        """
        link, direct, content_bytes = self._links[hop], self._direct.get(hop), sum(lengths)
        if direct is not None and content_bytes > DIRECT_BYTES_MAX:
            direct, link = None, self._by_broker[hop]
        if direct is not None and not direct.has_room:
            self._note_all_unsent(frames, hop)
            self._congestion.refused(hop, now_ms=now_ms)
            return 0
        if self.datagrams is not None and not urgent and self.datagrams.send(hop, content):
            return self._note_all_sent(frames, lengths, hop, content_bytes)
        if direct is None:
            sent_bytes = self._publish(hop, link, content, content_bytes, urgent=urgent)
        else:
            whole = b"".join(content)
            sent_bytes = self._send_straight(hop, link, direct, whole, urgent=urgent)
        if sent_bytes:
            return self._note_all_sent(frames, lengths, hop, sent_bytes)
        self._note_all_unsent(frames, hop)
        if sent_bytes is not None:
            self._congestion.refused(hop, now_ms=now_ms)
        return 0

    def _send_straight(
        self, hop: BrokerId, link: FrameLink, direct: Unconfirmed, content: bytes, *, urgent: bool
    ) -> int | None:
        """Send ``content`` to the agent of ``hop``; return the bytes sent, ``None`` without
        keys.
        """
        sealed: bytes | None = content
        if self.seals is not None:
            if direct.line is None:
                sealed = self.seals.guard.seal(DATA, "data", content, hop)
            else:
                sealed = direct.line.seal(URGENT_TOPIC if urgent else DIRECT_TOPIC, content)
        if sealed is None:
            return None
        field = _URGENT_FIELD if urgent else _DIRECT_FIELD
        if link.write_packets(_packet(field, (sealed,), len(sealed)), 1, urgent=urgent):
            direct.add(content, urgent=urgent)
        else:  # the link is broken, which will be reported later in this turn of the loop
            self.go_by_broker(hop)
            self.send_by_broker(hop, content)
        return len(sealed)

    def _publish(
        self,
        hop: BrokerId,
        link: FrameLink,
        content: Sequence[bytes | memoryview],
        size: int,
        *,
        urgent: bool = False,
    ) -> int | None:
        """Publish ``content`` of ``size`` bytes on the broker of ``hop``, in parts if needed.

        Returns:
            The bytes sent; 0: the link refused some. ``None``: it cannot be sent, because keys are
            missing or the agent supports no parts. That is no congestion: later frames may pass.
        """
        field = self._own_topics.get(hop, self._topic_field)
        room = link.packet_bytes_max - PUBLISH_BYTES_MAX - len(field) - self._seal_bytes
        pieces: Iterable[Sequence[bytes | memoryview]] = (content,)
        if size > room:
            if hop not in self._take_bundles:
                return None
            self._cut = (self._cut + 1) % PART_NUMBERS
            whole = b"".join(content)
            content, size = (whole,), max(room, PART_BYTES_MIN)
            parts = cut(whole, size, sender=self.self_id, number=self._cut)
            pieces = ((part,) for part in parts)
        trial: _Trial | None = None
        sent = 0
        for piece in pieces:
            if self.seals is not None:
                sealed = self.seals.guard.seal(DATA, "data", b"".join(piece), hop)
                if sealed is None:
                    return None
                piece = (sealed,)
            length = sum(map(len, piece))
            packet = _packet(field, piece, length)
            if sum(map(len, packet)) <= link.packet_bytes_sure:
                taken = link.write_packets(packet, 1, urgent=urgent)
            else:
                if trial is None:
                    tried = (hop, link, b"".join(content), size)
                    trial = _Trial(partial(self._too_long, *tried))
                taken = link.try_packet(b"".join(packet), trial)
            if not taken:
                return 0
            sent += length
        return sent

    def _too_long(self, hop: BrokerId, link: FrameLink, content: bytes, size: int) -> None:
        """The broker of ``hop`` refused ``content``, in packets of ``size`` bytes: cut it."""
        if link is self._by_broker.get(hop) and size > PART_BYTES_MIN:
            self.send_by_broker(hop, content)
        else:
            self._note_all_unsent([frame for frame, _ in frames_of(content)], hop)

    def send_repair(self, neighbour: BrokerId, frame: Frame, *, now_ms: Millis) -> bool:
        """Send a repair to a neighbour, unless many wait to be sent there already."""
        link = self._links.get(neighbour)
        if link is None or link.urgent_bytes > REPAIR_BACKLOG_BYTES_MAX:
            return False
        sends = ((neighbour, mask_bytes(frame.mask, frame.k)),)
        parts, size = (frame.body,), len(frame.body)
        self._congestion.repaired(neighbour, now_ms=now_ms)
        before = self.counters.frames_out
        self.send(frame, frame.hops, sends, parts, size, now_ms=now_ms, urgent=True)
        return self.counters.frames_out > before

    def send_by_broker(self, neighbour: BrokerId, frame: bytes) -> None:
        """Send a frame that failed on another way, and was counted as sent."""
        link = self._by_broker.get(neighbour)
        taken = link is not None and self._publish(neighbour, link, (frame,), len(frame))
        if not taken:
            self._note_all_unsent([lost for lost, _ in frames_of(frame)], neighbour)

    def _note_all_sent(
        self, frames: Sequence[Frame], lengths: Sequence[int], hop: BrokerId, size: int
    ) -> int:
        """Count ``frames`` as sent, in ``size`` bytes; return the publications in them."""
        self.counters.frames_out += len(frames)
        self.counters.frame_bytes_out += size
        if self.frame_events is not None:
            for frame, length in zip(frames, lengths, strict=True):
                sent = Sent(
                    hop, frame.publications, length,
                    frame.flags, frame.origin, frame.epoch, frame.seq,
                )  # fmt: skip
                self.frame_events.add(sent)
        return sum(frame.publications for frame in frames)

    def _note_all_unsent(self, frames: Sequence[Frame], hop: BrokerId) -> None:
        for frame in frames:
            self._note_unsent(frame, hop)

    def _note_unsent(self, frame: Frame, hop: BrokerId) -> None:
        if self.frame_events is not None:
            refused = Refused(
                hop, frame.publications, frame.flags > 0,
                frame.flags, frame.origin, frame.epoch, frame.seq,
            )  # fmt: skip
            self.frame_events.add(refused)
        if frame.flags:
            self.counters.deferred += frame.publications
        else:
            self.counters.dropped += frame.publications


def _packet(
    topic_field: bytes, content: Sequence[bytes | memoryview], size: int
) -> tuple[bytes | memoryview, ...]:
    """A PUBLISH of QoS 0, in pieces."""
    length = variable_byte_integer(len(topic_field) + 1 + size)
    return (b"\x30", length, topic_field, b"\0", *content)


def _topic_field(topic: str) -> bytes:
    encoded = topic.encode()
    return len(encoded).to_bytes(2, "big") + encoded


_DIRECT_FIELD, _URGENT_FIELD = _topic_field(DIRECT_TOPIC), _topic_field(URGENT_TOPIC)

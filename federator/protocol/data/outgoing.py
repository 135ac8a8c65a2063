"""Copies of frames on their way to neighbours: by their brokers, straight to their agents, or in
datagrams.

Which neighbours get a frame is decided elsewhere. Here each copy is labelled for its next hop,
sealed, and handed to whoever carries it; what nobody takes is counted.

The log of the origin has every frame under custody, and whoever misses one asks for it. On a
congested link a frame that joins the queue is worse than useless: it arrives behind a gap, cannot
be delivered, and what would close the gap shares the link with it. With a queue always full,
nothing at all would be delivered while the link carries all it can. So once a queue has refused
something, frames under custody stay away from it, but for one now and then, which tells the other
end how far the origin is. What the other end then asks for has the link nearly to itself, and comes
in order. When it has all it knew of, and asks for nothing more, the link is trusted with everything
again.

Source: docs/protocol.md section 8; docs/guarantees.md, "Flow control".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from federator.protocol.data.ports import Datagrams, DataLink, Seals
from federator.protocol.data.unconfirmed import Unconfirmed
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.forwarding.forwarding import Sends
from federator.protocol.forwarding.frames import CUSTODY_FLAG, Frame, mask_bytes, pack_label, unpack
from federator.protocol.forwarding.publications import variable_byte_integer
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.telemetry.frame_events import FrameEventSink, Refused, Sent
from federator.protocol.trust.guard import DATA, SEAL_BYTES
from federator.protocol.types import BrokerId, Millis

REPAIR_BACKLOG_BYTES_MAX = 262_144
"""Repairs wait until a connection has less of them to send than this."""

PUBLISH_BYTES = 5
"""Of a PUBLISH around a frame: its first byte, its length in mostly three, and no properties."""

QUIET_MS = Millis(1_000)
"""How long nothing must have waited, or been asked for again, before a link is trusted."""

SIGN_GAP_MS = Millis(2_000)
"""Between two frames that go all the same; more than ``QUIET_MS``."""


DIRECT_BYTES_MAX = 15 * 1024 * 1024
"""Longer frames go by the broker, which says what it takes."""

DIRECT_TOPIC, URGENT_TOPIC = "d", "u"
"""What a PUBLISH to a neighbour's agent says in place of a topic: the sort of its frame, by which
frames are counted on each connection."""


@dataclass(slots=True)
class _Congested:
    """When a neighbour's link was last busy, and when a frame may go all the same."""

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
        """Something that was asked for goes to ``neighbour``."""
        congested = self._congested.get(neighbour)
        if congested is not None:
            congested.busy_ms = now_ms

    def keeps_out(self, neighbour: BrokerId, *, idle: bool, now_ms: Millis) -> bool:
        """Whether a frame that is in its origin's log had better not go to ``neighbour`` now.

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


@dataclass(kw_only=True, eq=False)
class Outgoing:
    """What leaves one agent for its neighbours, as PUBLISHes on ``topic`` of their brokers."""

    self_id: BrokerId
    topic: str
    counters: DataCounters
    policies: LinkPolicies
    seals: Seals | None
    frame_events: FrameEventSink | None
    datagrams: Datagrams | None

    def __post_init__(self) -> None:
        self._topic_field = _topic_field(self.topic)
        self._links: dict[BrokerId, DataLink] = {}  # in use
        self._by_broker: dict[BrokerId, DataLink] = {}  # to the brokers of neighbours
        self._direct: dict[BrokerId, Unconfirmed] = {}  # of neighbours whose agents are in use
        self._own_topics: dict[BrokerId, bytes] = {}  # of neighbours that have others
        self._congestion = CongestionControl()

    def reach(self, neighbour: BrokerId, link: DataLink | None) -> None:
        """Send what is meant for ``neighbour`` over ``link``; ``None``: it cannot be reached."""
        if link is None:
            for ways in (self._links, self._by_broker, self._direct):
                ways.pop(neighbour, None)
            return
        self._by_broker[neighbour] = link
        if neighbour not in self._direct:
            self._links[neighbour] = link

    def go_direct(self, neighbour: BrokerId, link: DataLink, sent: Unconfirmed) -> None:
        """Send what is meant for ``neighbour`` to its agent over ``link`` from now on.

        Only what ``sent`` has room for is sent; ``link`` refuses nothing unless it is broken.
        """
        self._links[neighbour], self._direct[neighbour] = link, sent

    def go_by_broker(self, neighbour: BrokerId) -> int:
        """Send by its broker again, first of all what its agent has not confirmed.

        Returns:
            How many frames go once more.
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
        return (
            PUBLISH_BYTES + len(self._topic_field) + (SEAL_BYTES if self.seals is not None else 0)
        )

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
        sent, count, whole = 0, frame.publications, (frame, parts, size)
        for hop, mask in sends:
            if self.policies.active:
                frame, parts, size = whole
                let_out = self.policies.outgoing(hop, frame, parts)
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
                # The origin's log has it, and who misses it asks: better than a place in the queue.
                frame.flags & CUSTODY_FLAG
                and not urgent
                and self._congestion
                and self._congestion.keeps_out(hop, idle=link.idle, now_ms=now_ms)
            ):
                self._note_unsent(frame, hop)
                continue
            direct = self._direct.get(hop)
            if direct is not None and size > DIRECT_BYTES_MAX:
                direct, link = None, self._by_broker[hop]
            if direct is not None and not direct.has_room:
                self._note_unsent(frame, hop)
                self._congestion.refused(hop, now_ms=now_ms)
                continue
            label = pack_label(frame, hops=hops, sender=self.self_id, mask=mask)
            content: tuple[bytes | memoryview, ...] = (label, *parts)
            content_bytes = len(label) + size
            if self.datagrams is not None and not urgent and self.datagrams.send(hop, content):
                sent += count
                self._note_sent(frame, hop, content_bytes, content_bytes)
                continue
            unsealed = b""
            if self.seals is not None or direct is not None:
                unsealed = b"".join(content)
                content = (unsealed,)
            if self.seals is not None:
                sealed = self.seals.guard.seal(DATA, "data", unsealed, hop)
                if sealed is None:
                    self._note_unsent(frame, hop)
                    continue
                content, content_bytes = (sealed,), len(sealed)
            field = self._own_topics.get(hop, self._topic_field)
            if direct is not None:
                field = _URGENT_FIELD if urgent else _DIRECT_FIELD
            taken = link.write_packets(_packet(field, content, content_bytes), 1, urgent=urgent)
            if direct is not None:
                if taken:
                    direct.add(unsealed, urgent=urgent)
                else:  # it is broken, and that will be told later in this turn of the loop
                    self.go_by_broker(hop)
                    self.send_by_broker(hop, unsealed)
                taken = True
            if taken:
                sent += count
                self._note_sent(frame, hop, content_bytes, len(label) + size)
            else:
                self._note_unsent(frame, hop)
                self._congestion.refused(hop, now_ms=now_ms)
        return sent

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
        """Send a frame that went another way in vain, and that was counted as sent."""
        link = self._by_broker.get(neighbour)
        sealed: bytes | None = frame
        if self.seals is not None:
            sealed = self.seals.guard.seal(DATA, "data", frame, neighbour)
        taken = False
        if link is not None and sealed is not None:
            field = self._own_topics.get(neighbour, self._topic_field)
            taken = link.write_packets(_packet(field, (sealed,), len(sealed)), 1)
        if not taken:
            self._note_unsent(unpack(frame), neighbour)

    def _note_sent(self, frame: Frame, hop: BrokerId, size: int, unsealed_size: int) -> None:
        self.counters.frames_out += 1
        self.counters.frame_bytes_out += size
        if self.frame_events is not None:
            sent = Sent(
                hop, frame.publications, unsealed_size,
                frame.flags, frame.origin, frame.epoch, frame.seq,
            )  # fmt: skip
            self.frame_events.add(sent)

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
    topic_field: bytes, content: tuple[bytes | memoryview, ...], size: int
) -> tuple[bytes | memoryview, ...]:
    """A PUBLISH of QoS 0, in pieces."""
    length = variable_byte_integer(len(topic_field) + 1 + size)
    return (b"\x30", length, topic_field, b"\0", *content)


def _topic_field(topic: str) -> bytes:
    encoded = topic.encode()
    return len(encoded).to_bytes(2, "big") + encoded


_DIRECT_FIELD, _URGENT_FIELD = _topic_field(DIRECT_TOPIC), _topic_field(URGENT_TOPIC)

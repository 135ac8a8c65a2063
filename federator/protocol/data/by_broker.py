"""Frames to neighbours as PUBLISHes on their brokers: the transport that every link has.

A broker may limit the length of packets. Longer frames are cut into parts, for agents that support
parts; a broker that drops long packets silently is asked first, with a packet that it answers.

Source: docs/protocol.md section 8.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from federator.protocol.data.ports import FrameLink
from federator.protocol.forwarding.parts import PART_BYTES_MIN, cut
from federator.protocol.forwarding.publications import publish_pieces, topic_field
from federator.protocol.trust.guard import DATA, SEAL_BYTES, Seals
from federator.protocol.types import BrokerId

PUBLISH_BYTES, PUBLISH_BYTES_MAX = 5, 8
"""The size of a PUBLISH around a frame: its first byte, its length in mostly three bytes, and no
properties; at most a packet identifier, too.
"""

PART_NUMBERS = 1 << 32


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
class ByBroker:
    """Publishes frames on ``topic`` of neighbours' brokers; the last transport that is asked."""

    self_id: BrokerId
    topic: str
    seals: Seals | None
    # Called with a neighbour and a frame that was counted as sent, and could not be.
    lost: Callable[[BrokerId, bytes], None]

    def __post_init__(self) -> None:
        self._topic_field = topic_field(self.topic)
        self.links: dict[BrokerId, FrameLink] = {}
        self._own_topics: dict[BrokerId, bytes] = {}  # of neighbours that have another topic
        self.take_bundles: set[BrokerId] = set()  # neighbours that support bundles and parts
        self._cut = 0  # how often something was cut into parts

    def reach(
        self,
        neighbour: BrokerId,
        link: FrameLink | None,
        topic: str | None = None,
        *,
        takes_bundles: bool = False,
    ) -> None:
        """Publish for ``neighbour`` over ``link``, on ``topic`` if that is not the usual one."""
        self.take_bundles.discard(neighbour)
        self._own_topics.pop(neighbour, None)
        if link is None:
            self.links.pop(neighbour, None)
            return
        self.links[neighbour] = link
        if takes_bundles:
            self.take_bundles.add(neighbour)
        if topic not in (None, self.topic):
            self._own_topics[neighbour] = topic_field(topic)

    def queue_to(self, neighbour: BrokerId) -> FrameLink | None:
        return self.links.get(neighbour)

    @property
    def overhead_bytes(self) -> int:
        """What a frame takes on its link beside label and body: the PUBLISH around it, its seal."""
        return PUBLISH_BYTES + len(self._topic_field) + self._seal_bytes

    @property
    def _seal_bytes(self) -> int:
        return SEAL_BYTES if self.seals is not None else 0

    def send(
        self,
        neighbour: BrokerId,
        content: Sequence[bytes | memoryview],
        size: int,
        *,
        urgent: bool = False,
    ) -> int | None:
        """Publish ``content`` on the neighbour's broker, in parts if needed; see ``Transport``.

        ``None``: keys are missing, or the agent supports no parts. That is no congestion: later
        frames may pass.
        """
        link = self.links[neighbour]
        field = self._own_topics.get(neighbour, self._topic_field)
        room = link.packet_bytes_max - PUBLISH_BYTES_MAX - len(field) - self._seal_bytes
        pieces: Iterable[Sequence[bytes | memoryview]] = (content,)
        if size > room:
            if neighbour not in self.take_bundles:
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
                sealed = self.seals.guard.seal(DATA, "data", b"".join(piece), neighbour)
                if sealed is None:
                    return None
                piece = (sealed,)
            length = sum(map(len, piece))
            packet = publish_pieces(field, piece, length)
            if sum(map(len, packet)) <= link.packet_bytes_sure:
                taken = link.write_packets(packet, 1, urgent=urgent)
            else:
                if trial is None:
                    tried = (neighbour, link, b"".join(content), size)
                    trial = _Trial(partial(self._too_long, *tried))
                taken = link.try_packet(b"".join(packet), trial)
            if not taken:
                return 0
            sent += length
        return sent

    def resend(self, neighbour: BrokerId, frame: bytes) -> None:
        """Send a frame that another transport took and did not deliver."""
        if neighbour not in self.links or not self.send(neighbour, (frame,), len(frame)):
            self.lost(neighbour, frame)

    def _too_long(self, neighbour: BrokerId, link: FrameLink, content: bytes, size: int) -> None:
        """The broker refused ``content``, in packets of ``size`` bytes: cut it."""
        if link is self.links.get(neighbour) and size > PART_BYTES_MIN:
            self.resend(neighbour, content)
        else:
            self.lost(neighbour, content)

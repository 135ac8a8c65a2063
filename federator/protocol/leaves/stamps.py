"""Stamps: the lasting name of a publication, wherever agents number it anew.

Between a leaf and each of its two hubs a publication has another number, and in the mesh a third
one. So when a leaf goes on at its other hub, no agent could tell what came by the first one
already. Therefore the first agent that carries a publication for such a leaf, or from it, stamps
it: with the broker where a client published it, its frame's number there, and a mark of its
content. Every agent that publishes it on its own broker checks its book of stamps, and publishes
each once. It is the baggage tag that stays on whatever flight the suitcase takes.

The agent of a hub and the ports of its leaves each receive what clients of the hub publish, and all
must give it the same stamp. So the first of them that takes a publication gives it a number, and
another that takes one of that content soon after uses the same number.

A stamp travels as a user property of the publication. At the broker of a hub it passes between
agents of one process, where a client can see it; there it has a seal that only this process can
make. Everywhere else it is removed before clients get the publication, and a client's own property
of that name is removed before any other agent gets it.

Source: docs/hubs.md; docs/protocol.md 20.
"""

import binascii
import struct
from base64 import b64decode, b64encode
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from mqtt5 import PublishPacket

from federator.protocol.custody.ports import KnownStamp
from federator.protocol.forwarding.frames import Frame
from federator.protocol.forwarding.publications import (
    Inbound,
    joined,
    packets_in,
    remade,
    topics_of,
)
from federator.protocol.leaves.handover import Turn
from federator.protocol.leaves.twins import Twins
from federator.protocol.types import BrokerId, Millis

PROPERTY: Final = "federator-stamp"
NAME: Final = PROPERTY.encode()
SEAL_BYTES: Final = 8
KNOWN_MAX: Final = 65_536
"""Stamps remembered: at 300 publications a second those of the last three minutes."""

TWIN_MS: Final = 2_000
"""How much later than the first another agent of our broker may take the same publication."""

_WIRE: Final = struct.Struct(">IQQQ")


class Stamp(NamedTuple):
    """The name of a publication wherever it goes."""

    home: BrokerId  # where a client published it
    epoch: int  # the epoch of custody's numbers there
    number: int  # that of the frame which first carried it
    mark: int  # of its content, among those of the frame


class StampBook:
    """The stamps of what was published on one broker; all its agents share the book.

    Args:
        secret: Of this process, if it is a hub: it seals stamps. ``None``: it is no hub, and
            stamps are removed.
        life: Identifies this run of the process; its numbers are valid within it.
    """

    def __init__(
        self, secret: bytes | None = None, *, life: int = 0, known_max: int = KNOWN_MAX
    ) -> None:
        self.secret = secret
        self.life = life
        self.own = OwnNumbers()
        # Whether a leaf brought it, otherwise the mesh; the oldest first.
        self._seen: dict[int, bool] = {}
        self._known_max = known_max

    def find(self, stamp: KnownStamp) -> bool | None:
        """Whether a leaf brought ``stamp`` before; ``None``: it is new."""
        return self._seen.get(stamp.digest)

    def note(self, stamp: KnownStamp) -> None:
        """``stamp`` was published here, or is now."""
        if len(self._seen) >= self._known_max:
            del self._seen[next(iter(self._seen))]
        self._seen[stamp.digest] = stamp.by_leaf


class OwnNumbers:
    """Numbers for what clients of one broker publish, the same for all its agents."""

    def __init__(self) -> None:
        self._given: Twins[int] = Twins(TWIN_MS, oldest=True)
        self._last = 0

    def number(self, mark: int, taker: int, now_ms: Millis) -> int:
        """The number of the publication with this content that ``taker`` took now."""
        number = self._given.decide(mark, taker, self._last + 1, now_ms)
        self._last = max(self._last, number)
        return number


class Stamps:
    """What one agent does with stamps.

    Args:
        book: That of its broker.
        is_port: A leaf is at the other end: its stamps are ignored.
        again: Takes what a leaf brings that the mesh brought before: others there may lack it.

    Attributes:
        turn: For an agent that succeeds another one at its broker, or is succeeded: what either
            of the two publishes is no client's, and one of them takes what clients publish.
        stamping: Publications under custody without a stamp get one here: their frame's.
        repeats: Publications that had been published here by another way.
        unsaved: What was published here and is not on disk. It is written once our broker has
            it; otherwise the next run would assume that the broker has it.
    """

    def __init__(
        self,
        self_id: BrokerId,
        book: StampBook,
        *,
        is_port: bool = False,
        again: Callable[[bytes], None] | None = None,
        turn: Turn | None = None,
    ) -> None:
        self.book = book
        self.again = again
        self.turn = turn
        self.stamping = False
        self.repeats = 0
        self.unsaved: deque[KnownStamp] = deque(maxlen=KNOWN_MAX)
        self._self_id = self_id
        self._is_port = is_port

    # From a client, or from another agent of this broker

    def leaving(
        self, chunk: memoryview, publishes: Sequence[Inbound], *, but: str, now_ms: Millis
    ) -> tuple[memoryview, Sequence[Inbound]]:
        """What our broker sent, with valid stamps only: those of clients are removed.

        ``but``: the topic of frames, which are no client's publications.
        """
        if self.turn is not None:
            return joined(list(self._taken(self.turn, chunk, publishes, but, now_ms)))
        # Not searched in the bytes: they are mostly payload, which may be long.
        if not self.stamping and not any(packet.user_properties for packet, _, _ in publishes):
            return chunk, publishes
        kept: list[tuple[PublishPacket, bytes | memoryview]] = []
        altered = False
        for packet, start, end in publishes:
            wire: bytes | memoryview = chunk[start:end]
            if packet.topic != but and not self._is_ours(packet):
                altered = True
                packet = self._as_our_clients(packet, now_ms)
                wire = packet.write()
            kept.append((packet, wire))
        return joined(kept) if altered else (chunk, publishes)

    def _taken(
        self,
        turn: Turn,
        chunk: memoryview,
        publishes: Sequence[Inbound],
        but: str,
        now_ms: Millis,
    ) -> Iterator[tuple[PublishPacket, bytes | memoryview]]:
        """What of all that our broker sent this agent carries while there are two."""
        for packet, start, end in publishes:
            if packet.topic == but:
                yield packet, chunk[start:end]
            elif not self._is_sealed(packet) and (
                turn.is_mine if packet.duplicate else turn.takes(content_mark(packet), now_ms)
            ):
                plain = _without(packet) if _stamps_of(packet) else packet
                yield plain, chunk[start:end] if plain is packet else plain.write()

    def _as_our_clients(self, packet: PublishPacket, now_ms: Millis) -> PublishPacket:
        """``packet`` of a client of our broker, with our stamp or none."""
        if not (self.stamping and packet.packet_id):
            return _without(packet)
        mark = content_mark(packet)
        number = self.book.own.number(mark, id(self), now_ms)
        return self._stamped(packet, Stamp(self._self_id, self.book.life, number, mark), mark)

    def _is_ours(self, packet: PublishPacket) -> bool:
        """Whether an agent of this broker made it, as its seal shows.

        Where nothing is stamped, a packet without a stamp passes as well.
        """
        values = _stamps_of(packet)
        if self.book.secret is None or len(values) != 1:
            return not values and not (self.stamping and packet.packet_id)
        return self._is_sealed(packet)

    def _is_sealed(self, packet: PublishPacket) -> bool:
        """Whether it has a seal that only this process can make."""
        values = _stamps_of(packet)
        if self.book.secret is None or len(values) != 1:
            return False
        wire = values[0]
        return wire[_WIRE.size :] == self._seal(wire[: _WIRE.size], content_mark(packet))

    # From another broker

    @property
    def counts_in_frames(self) -> bool:
        """Whether arriving publications get stamps: from their frame and their place in it."""
        return self.turn is not None or self.stamping

    def arriving(self, frame: Frame, run: bytes, *, now_ms: Millis, may_bear: bool = True) -> bytes:
        """What of ``run``, the well-formed body of ``frame``, is published on our broker.

        ``may_bear``: some of its packets have properties, so perhaps stamps.
        """
        may_have_stamps = may_bear and NAME in run
        custody, turn = frame.acknowledged, self.turn
        stamps = turn is not None or (self.stamping and custody)
        if not may_have_stamps and not stamps:
            return run
        parts: list[bytes] = []
        again: list[bytes] = []
        marks: Counter[int] = Counter()
        for packet, (start, end, _) in zip(packets_in(run), topics_of(run), strict=True):
            given = _stamp_of(packet) if may_have_stamps and custody and not self._is_port else None
            stamp, mark = given, None
            if stamp is None and stamps:
                mark = content_mark(packet)
                if turn is not None and not custody and not turn.brings(mark, now_ms):
                    continue
                stamp = Stamp(frame.origin, frame.epoch, frame.seq, mark + marks[mark])
                marks[mark] += 1
            if stamp is None:
                parts.append(_without(packet).write() if may_have_stamps else run[start:end])
                continue
            wire = self._stamped(packet, stamp, mark).write()
            # A publication without a stamp came by one way only: the mesh numbered it.
            before = None
            if given is not None or self._is_port or (turn is not None and custody):
                before = self._admit(stamp)
            if before is None and stamp.home != self._self_id:
                parts.append(wire)
                continue
            self.repeats += 1
            if before is False and self._is_port:
                again.append(wire)
        if again and self.again is not None:
            self.again(b"".join(again))
        return b"".join(parts)

    def _admit(self, stamp: Stamp) -> bool | None:
        """Note ``stamp``: ``None`` when it is new, else whether a leaf brought it before."""
        digest = blake2b(_WIRE.pack(*stamp), digest_size=8).digest()
        entry = KnownStamp(int.from_bytes(digest, "big"), self._is_port)
        before = self.book.find(entry)
        if before is None:
            self.book.note(entry)
            self.unsaved.append(entry)
        return before

    def _stamped(self, packet: PublishPacket, stamp: Stamp, mark: int | None) -> PublishPacket:
        """``packet`` as our broker gets it; ``mark`` is that of its content, if known."""
        properties = _others(packet)
        if self.book.secret is not None:
            wire = _WIRE.pack(*stamp)
            seal = self._seal(wire, content_mark(packet) if mark is None else mark)
            properties.append((PROPERTY, b64encode(wire + seal).decode()))
        return remade(packet, user_properties=properties)

    def _seal(self, wire: bytes, mark: int) -> bytes:
        assert self.book.secret is not None, "only hubs seal stamps"
        content = wire + mark.to_bytes(8, "big")
        return blake2b(content, key=self.book.secret, digest_size=SEAL_BYTES).digest()


def content_mark(packet: PublishPacket) -> int:
    """A number for topic and payload, with room for equal ones that follow: below 2**63."""
    topic = packet.topic.encode()
    digest = blake2b(len(topic).to_bytes(2, "big") + topic, digest_size=8)
    digest.update(packet.payload)
    return int.from_bytes(digest.digest(), "big") >> 1


def _stamps_of(packet: PublishPacket) -> list[bytes]:
    """The stamps of ``packet``, each with its seal; an undecodable one is empty."""
    return [_decoded(value) for name, value in packet.user_properties if name == PROPERTY]


def _decoded(value: str) -> bytes:
    try:
        wire = b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return wire if len(wire) == _WIRE.size + SEAL_BYTES else b""


def _stamp_of(packet: PublishPacket) -> Stamp | None:
    values = _stamps_of(packet)
    if len(values) != 1 or not values[0]:
        return None
    home, *rest = _WIRE.unpack(values[0][: _WIRE.size])
    return Stamp(BrokerId(home), *rest)


def _others(packet: PublishPacket) -> list[tuple[str, str]]:
    """The user properties of ``packet`` that are no stamps."""
    return [pair for pair in packet.user_properties if pair[0] != PROPERTY]


def _without(packet: PublishPacket) -> PublishPacket:
    return remade(packet, user_properties=_others(packet))

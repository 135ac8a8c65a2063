"""Stamps: what a publication is called for good, wherever agents number it anew.

Between a leaf and each of its two hubs a publication has another number, and in the mesh a third
one. So when a leaf goes on at its other hub nobody could tell what came by the first one already.
Therefore whoever first carries a publication for such a leaf, or from it, stamps it: with the
broker where a client published it, its frame's number there, and a mark of its content. Every agent
that publishes it on its own broker looks into its book of stamps, and publishes each once. It is
the baggage tag that stays on whatever flight the suitcase takes.

What clients of a hub publish its agent and the ports of its leaves take from the broker each for
itself, and a stamp must be the same whoever gives it. So the first who takes a publication gives it
a number, and who takes one of that content soon after takes that number over.

A stamp travels as a user property of the publication. At the broker of a hub it passes between
agents of one process, where a client can see it; there it bears a seal that only this process can
make. Everywhere else it is taken off before clients get the publication, and a client's own
property of that name is taken off before anybody else does.

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

from federator.protocol.data.handover import Turn
from federator.protocol.data.ports import Inbound, KnownStamp
from federator.protocol.forwarding.frames import Frame
from federator.protocol.forwarding.publications import joined, packets_in, remade, topics_of
from federator.protocol.types import BrokerId, Millis

PROPERTY: Final = "federator-stamp"
NAME: Final = PROPERTY.encode()
SEAL_BYTES: Final = 8
KNOWN_MAX: Final = 65_536
"""Stamps remembered: at 300 publications a second those of the last three minutes."""

TWIN_MS: Final = 2_000
"""How much later than the first another agent of our broker may take the same publication."""

TWINS_MAX: Final = 65_536
"""Publications that others may still take; of more, the oldest are taken for others."""

_WIRE: Final = struct.Struct(">IQQQ")


class Stamp(NamedTuple):
    """What a publication is called wherever it goes."""

    home: BrokerId  # where a client published it
    epoch: int  # of custody's numbers there
    number: int  # of the frame that first carried it
    mark: int  # of its content, among those of the frame


class StampBook:
    """What was published on one broker: all its agents write and read in it.

    Args:
        secret: Of this process, which is a hub: with it stamps are sealed. ``None``: it is none,
            and stamps are taken off.
        life: Of this process; what it numbers, it numbers within it.
    """

    def __init__(
        self, secret: bytes | None = None, *, life: int = 0, known_max: int = KNOWN_MAX
    ) -> None:
        self.secret = secret
        self.life = life
        self.own = OwnNumbers()
        self._known: dict[int, bool] = {}  # by whom, a leaf or the mesh; the oldest first
        self._known_max = known_max

    def find(self, stamp: KnownStamp) -> bool | None:
        """Whether a leaf brought ``stamp`` before; ``None``: nobody did."""
        return self._known.get(stamp.digest)

    def note(self, stamp: KnownStamp) -> None:
        """It was published here, or is now."""
        if len(self._known) >= self._known_max:
            del self._known[next(iter(self._known))]
        self._known[stamp.digest] = stamp.by_leaf


class OwnNumbers:
    """Numbers for what clients of one broker publish, the same for all its agents."""

    def __init__(self) -> None:
        self._given: dict[int, deque[tuple[int, Millis, set[int]]]] = {}  # by content's mark
        self._order: deque[tuple[Millis, int]] = deque()  # when which mark was given a number
        self._last = 0

    def number(self, mark: int, taker: int, now_ms: Millis) -> int:
        """The number of the publication with this content that ``taker`` took now."""
        self._expire(now_ms)
        given = self._given.setdefault(mark, deque())
        for number, _, takers in given:
            if taker not in takers:
                takers.add(taker)
                return number
        self._last += 1
        given.append((self._last, now_ms, {taker}))
        self._order.append((now_ms, mark))
        return self._last

    def _expire(self, now_ms: Millis) -> None:
        order = self._order
        while order and (order[0][0] + TWIN_MS < now_ms or len(order) > TWINS_MAX):
            _, mark = order.popleft()
            given = self._given[mark]
            given.popleft()
            if not given:
                del self._given[mark]


class Stamps:
    """What one agent does with stamps.

    Args:
        book: Of its broker.
        is_port: A leaf is at the other end: it speaks for itself alone, whatever it says.
        again: Takes what a leaf brings that the mesh brought before: others there may lack it.

    Attributes:
        turn: Of an agent that follows another one at its broker, or is followed: what one of the
            two gives the broker is no client's, and what clients publish one of them takes.
        stamping: Publications under custody that bear no stamp get one here: their frame's.
        repeats: Publications that had been published here by another way.
        unsaved: What was published here and is not on disk. It is written once our broker has it,
            or the next life would think that it has.
    """

    def __init__(
        self,
        self_id: BrokerId,
        book: StampBook,
        *,
        is_port: bool = False,
        again: Callable[[bytes], None] | None = None,
    ) -> None:
        self.book = book
        self.again = again
        self.turn: Turn | None = None
        self.stamping = False
        self.repeats = 0
        self.unsaved: deque[KnownStamp] = deque(maxlen=KNOWN_MAX)
        self._self_id = self_id
        self._is_port = is_port

    # From a client, or from another agent of this broker

    def leaving(
        self, chunk: memoryview, publishes: Sequence[Inbound], *, but: str, now_ms: Millis
    ) -> tuple[memoryview, Sequence[Inbound]]:
        """What our broker brings, each with the stamp that it has, and none that a client made.

        ``but``: the topic of frames, which are nobody's publications.
        """
        if self.turn is not None:
            return joined(list(self._taken(self.turn, chunk, publishes, but, now_ms)))
        # Not searched for in the bytes: they are payload for the most part, which may be long.
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
        """What of all that our broker brings is ours to carry while there are two of us."""
        for packet, start, end in publishes:
            if packet.topic == but:
                yield packet, chunk[start:end]
            elif not self._is_sealed(packet) and (
                turn.is_mine if packet.duplicate else turn.takes(content_mark(packet), now_ms)
            ):
                plain = _without(packet) if _said(packet) else packet
                yield plain, chunk[start:end] if plain is packet else plain.write()

    def _as_our_clients(self, packet: PublishPacket, now_ms: Millis) -> PublishPacket:
        """What a client of our broker published, whatever it says."""
        if not (self.stamping and packet.packet_id):
            return _without(packet)
        mark = content_mark(packet)
        number = self.book.own.number(mark, id(self), now_ms)
        return self._stamped(packet, Stamp(self._self_id, self.book.life, number, mark), mark)

    def _is_ours(self, packet: PublishPacket) -> bool:
        """Whether it is as an agent of this broker made it: its seal says so.

        Where nothing is stamped, what bears no stamp may pass as well.
        """
        said = _said(packet)
        if self.book.secret is None or len(said) != 1:
            return not said and not (self.stamping and packet.packet_id)
        return self._is_sealed(packet)

    def _is_sealed(self, packet: PublishPacket) -> bool:
        """Whether it bears a seal that only this process can make."""
        said = _said(packet)
        if self.book.secret is None or len(said) != 1:
            return False
        wire = said[0]
        return wire[_WIRE.size :] == self._seal(wire[: _WIRE.size], content_mark(packet))

    # From another broker

    @property
    def counts_in_frames(self) -> bool:
        """Whether stamps are made of what arrives: from its frame, and its place among its like."""
        return self.turn is not None or self.stamping

    def arriving(self, frame: Frame, run: bytes, *, now_ms: Millis, may_bear: bool = True) -> bytes:
        """What of ``run``, the well-formed body of ``frame``, is published on our broker.

        ``may_bear``: some of its packets have properties, so perhaps stamps.
        """
        found = may_bear and NAME in run
        custody, turn = frame.acknowledged, self.turn
        stamps = turn is not None or (self.stamping and custody)
        if not found and not stamps:
            return run
        parts: list[bytes] = []
        again: list[bytes] = []
        marks: Counter[int] = Counter()
        for packet, (start, end, _) in zip(packets_in(run), topics_of(run), strict=True):
            given = _stamp_of(packet) if found and custody and not self._is_port else None
            stamp, mark = given, None
            if stamp is None and stamps:
                mark = content_mark(packet)
                if turn is not None and not custody and not turn.brings(mark, now_ms):
                    continue
                stamp = Stamp(frame.origin, frame.epoch, frame.seq, mark + marks[mark])
                marks[mark] += 1
            if stamp is None:
                parts.append(_without(packet).write() if found else run[start:end])
                continue
            wire = self._stamped(packet, stamp, mark).write()
            # What bears no stamp yet came by one way only: the mesh numbered it.
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
        known = KnownStamp(int.from_bytes(digest, "big"), self._is_port)
        before = self.book.find(known)
        if before is None:
            self.book.note(known)
            self.unsaved.append(known)
        return before

    def _stamped(self, packet: PublishPacket, stamp: Stamp, mark: int | None) -> PublishPacket:
        """``packet`` as our broker gets it; ``mark`` is its content's, if that is known."""
        properties = _others(packet)
        if self.book.secret is not None:
            wire = _WIRE.pack(*stamp)
            seal = self._seal(wire, content_mark(packet) if mark is None else mark)
            properties.append((PROPERTY, b64encode(wire + seal).decode()))
        return remade(packet, user_properties=properties)

    def _seal(self, wire: bytes, mark: int) -> bytes:
        assert self.book.secret is not None, "only hubs seal stamps"
        said = wire + mark.to_bytes(8, "big")
        return blake2b(said, key=self.book.secret, digest_size=SEAL_BYTES).digest()


def content_mark(packet: PublishPacket) -> int:
    """A number for topic and payload, with room for equal ones that follow: below 2**63."""
    topic = packet.topic.encode()
    digest = blake2b(len(topic).to_bytes(2, "big") + topic, digest_size=8)
    digest.update(packet.payload)
    return int.from_bytes(digest.digest(), "big") >> 1


def _said(packet: PublishPacket) -> list[bytes]:
    """What the stamps of ``packet`` say, each with its seal; nothing of one that says nothing."""
    return [_decoded(value) for name, value in packet.user_properties if name == PROPERTY]


def _decoded(value: str) -> bytes:
    try:
        wire = b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return wire if len(wire) == _WIRE.size + SEAL_BYTES else b""


def _stamp_of(packet: PublishPacket) -> Stamp | None:
    said = _said(packet)
    if len(said) != 1 or not said[0]:
        return None
    home, *rest = _WIRE.unpack(said[0][: _WIRE.size])
    return Stamp(BrokerId(home), *rest)


def _others(packet: PublishPacket) -> list[tuple[str, str]]:
    """The user properties of ``packet`` that are no stamps."""
    return [each for each in packet.user_properties if each[0] != PROPERTY]


def _without(packet: PublishPacket) -> PublishPacket:
    return remade(packet, user_properties=_others(packet))

"""Stamps: what a publication is called for good, wherever agents number it anew.

Between a leaf and each of its two hubs a publication has another number, and in the mesh a third
one. So when a leaf goes on at its other hub nobody could tell what came by the first one already.
Therefore whoever first carries a publication for such a leaf, or from it, stamps it: with the
broker where a client published it, its frame's number there, and a mark of its content. Every agent
that publishes it on its own broker looks into its book of stamps, and publishes each once. It is
the baggage tag that stays on whatever flight the suitcase takes.

A stamp travels as a user property of the publication. At the broker of a hub it passes between
agents of one process, where a client can see it; there it bears a seal that only this process can
make. Everywhere else it is taken off before clients get the publication, and a client's own
property of that name is taken off before anybody else does.

Source: docs/hubs.md; docs/protocol.md 20.
"""

import binascii
import struct
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from mqtt5 import PublishPacket

from federator.protocol.data.ports import Inbound
from federator.protocol.forwarding.frames import Frame
from federator.protocol.forwarding.publications import joined, packets_in, remade, topics_of
from federator.protocol.types import BrokerId

PROPERTY: Final = "federator-stamp"
NAME: Final = PROPERTY.encode()
SEAL_BYTES: Final = 8
KNOWN_MAX: Final = 65_536
"""Stamps remembered: at 300 publications a second those of the last three minutes."""

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
    """

    def __init__(self, secret: bytes | None = None, *, known_max: int = KNOWN_MAX) -> None:
        self.secret = secret
        self._known: dict[int, bool] = {}  # by whom, a leaf or the mesh; the oldest first
        self._known_max = known_max

    def admit(self, stamp: Stamp, *, by_leaf: bool) -> bool | None:
        """Note ``stamp``: ``None`` when it is new, else whether a leaf brought it before."""
        known = self._known
        key = hash(stamp)
        if key in known:
            return known[key]
        if len(known) >= self._known_max:
            del known[next(iter(known))]
        known[key] = by_leaf
        return None


class Stamps:
    """What one agent does with stamps.

    Args:
        book: Of its broker.
        is_port: A leaf is at the other end: it speaks for itself alone, whatever it says.
        again: Takes what a leaf brings that the mesh brought before: others there may lack it.

    Attributes:
        stamping: Publications under custody that bear no stamp get one here: their frame's.
        repeats: Publications that had been published here by another way.
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
        self.stamping = False
        self.repeats = 0
        self._self_id = self_id
        self._is_port = is_port

    # From a client, or from another agent of this broker

    def leaving(
        self, chunk: memoryview, publishes: Sequence[Inbound], *, but: str
    ) -> tuple[memoryview, Sequence[Inbound]]:
        """What our broker brings, without the stamps that nobody here made.

        ``but``: the topic of frames, which are nobody's publications.
        """
        if NAME not in bytes(chunk):
            return chunk, publishes
        kept: list[tuple[PublishPacket, bytes | memoryview]] = []
        for packet, start, end in publishes:
            wire: bytes | memoryview = chunk[start:end]
            if packet.topic != but and NAME in bytes(wire) and not self._is_ours(packet):
                packet = _without(packet)
                wire = packet.write()
            kept.append((packet, wire))
        return joined(kept)

    def _is_ours(self, packet: PublishPacket) -> bool:
        """Whether its stamp, if it bears one, was sealed by this process for this content."""
        said = _said(packet)
        if self.book.secret is None or len(said) != 1:
            return not said
        wire = said[0]
        return wire[_WIRE.size :] == self._seal(wire[: _WIRE.size], packet)

    # From another broker

    def arriving(self, frame: Frame, run: bytes) -> bytes:
        """What of ``run``, the well-formed body of ``frame``, is published on our broker."""
        found = NAME in run
        custody = frame.acknowledged
        if not found and not (self.stamping and custody):
            return run
        parts: list[bytes] = []
        again: list[bytes] = []
        marks: Counter[int] = Counter()
        for packet, (start, end, _) in zip(packets_in(run), topics_of(run), strict=True):
            given = None if self._is_port or not custody else _stamp_of(packet)
            stamp = given
            if stamp is None and self.stamping and custody:
                mark = content_mark(packet)
                stamp = Stamp(frame.origin, frame.epoch, frame.seq, mark + marks[mark])
                marks[mark] += 1
            if stamp is None:
                parts.append(_without(packet).write() if found else run[start:end])
                continue
            wire = self._stamped(packet, stamp)
            # What bears no stamp yet came by one way only: the mesh numbered it.
            before = None
            if given is not None or self._is_port:
                before = self.book.admit(stamp, by_leaf=self._is_port)
            if before is None and stamp.home != self._self_id:
                parts.append(wire)
                continue
            self.repeats += 1
            if before is False and self._is_port:
                again.append(wire)
        if again and self.again is not None:
            self.again(b"".join(again))
        return b"".join(parts)

    def _stamped(self, packet: PublishPacket, stamp: Stamp) -> bytes:
        bare = _without(packet)
        if self.book.secret is None:
            return bare.write()
        wire = _WIRE.pack(*stamp)
        said = b64encode(wire + self._seal(wire, packet)).decode()
        return remade(bare, user_properties=[*bare.user_properties, (PROPERTY, said)]).write()

    def _seal(self, wire: bytes, packet: PublishPacket) -> bytes:
        assert self.book.secret is not None, "only hubs seal stamps"
        seal = blake2b(wire, key=self.book.secret, digest_size=SEAL_BYTES)
        seal.update(content_mark(packet).to_bytes(8, "big"))
        return seal.digest()


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


def _without(packet: PublishPacket) -> PublishPacket:
    """``packet`` without stamps."""
    kept: Iterable[tuple[str, str]] = packet.user_properties
    return remade(packet, user_properties=[each for each in kept if each[0] != PROPERTY])

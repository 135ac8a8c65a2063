"""Renames applied to packets: out of our broker, and into it.

Most publications match no rename and keep their bytes; a match is rewritten, with all its
properties. A response topic is renamed too, so that the answer finds its way back.

Source: docs/rules.md; ``protocol.filters.renames``.
"""

from collections.abc import Callable, Sequence

from mqtt5 import PublishPacket

from federator.protocol.bounded_cache import BoundedCache
from federator.protocol.filters.renames import Renames
from federator.protocol.forwarding.publications import joined, remade
from federator.runtime.mqtt.wire import Inbound, inbound_of

_Name = Callable[[str], str | None]


class Renaming:
    """The renames of one agent at work."""

    def __init__(self, renames: Renames, data_topic: str) -> None:
        self.kept = 0  # publications of our clients that have no name in the federation
        self.hidden = 0  # publications that arrived and have no name here
        self._data_topic = data_topic  # topic of frames, which no client published
        self._outward = BoundedCache(renames.outward)
        self._inward = BoundedCache(renames.inward)
        self._prefixes = tuple(prefix.encode() for pair in renames.pairs for prefix in pair)

    def outgoing(
        self, chunk: memoryview, publishes: Sequence[Inbound]
    ) -> tuple[memoryview, Sequence[Inbound]]:
        """The publications of one read, with their names in the federation."""
        if not self._concerns(chunk):
            return chunk, publishes
        kept: list[tuple[PublishPacket, bytes | memoryview]] = []
        for packet, start, end in publishes:
            wire: bytes | memoryview = chunk[start:end]
            if packet.topic != self._data_topic:
                renamed = _renamed(packet, self._outward)
                if renamed is None:
                    self.kept += 1
                    continue
                if renamed is not packet:
                    packet = renamed
                    wire = packet.write()
            kept.append((packet, wire))
        return joined(kept)

    def inward(self, run: bytes) -> bytes:
        """``run``, which has well-formed packets, with the names on our broker."""
        if not self._concerns(run):
            return run
        renamed: list[bytes | memoryview] = []
        view = memoryview(run)
        for packet, start, end in inbound_of(run):
            other = _renamed(packet, self._inward)
            if other is None:
                self.hidden += 1
            else:
                renamed.append(view[start:end] if other is packet else other.write())
        return b"".join(renamed)

    def _concerns(self, run: bytes | bytearray | memoryview) -> bool:
        """Whether ``run`` contains any prefix; otherwise nothing changes."""
        content = bytes(run)
        return any(prefix in content for prefix in self._prefixes)


def _renamed(packet: PublishPacket, name: _Name) -> PublishPacket | None:
    """``packet`` under its other name, itself when nothing changes, ``None`` when it has none."""
    topic = name(packet.topic)
    if topic is None:
        return None
    answer_to = packet.response_topic
    if answer_to is not None:
        answer_to = name(answer_to) or answer_to
    if topic == packet.topic and answer_to == packet.response_topic:
        return packet
    return remade(packet, topic=topic, response_topic=answer_to)

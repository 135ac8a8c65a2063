"""Recent QoS 1 and 2 publications of this gateway's clients, and which of them are safe.

A broker's PUBACK says that the broker has a publication, but a broker that is killed the next
moment loses it. So a publication is kept here after its PUBACK:

- until the agent beside the broker has it in its custody log. The gateway asks with a **mark**, a
  publication that reaches the agent on the same connection as, and therefore behind, all that the
  broker acknowledged before; the agent's answer covers everything before the mark. If the broker
  dies first, the publication is sent to the next broker again.
- for ``recent_ms`` in any case: a client whose broker dies may not have received what its broker
  had for it, and gets the rest from here (``healing``).

Intuition: a receipt by the post office is not the parcel in the train.

Source: docs/gateway.md, "What a PUBACK is worth".
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from federator.gateway import wire
from federator.gateway.wire.kinds import V5, Kind, MalformedError, Version
from federator.protocol.types import BrokerId, Millis

OVERHEAD_BYTES: Final = 200
"""Python's memory for one packet, besides its bytes."""


@dataclass(slots=True)
class Publication:
    """A publication of ``client`` that a broker acknowledged; ``packet`` is as it was sent."""

    client: str
    packet: bytes
    version: Version
    acked_ms: Millis
    topic: bytes
    payload: bytes
    properties: wire.Properties

    @property
    def qos(self) -> int:
        """The QoS, 1 or 2."""
        return (self.packet[0] & wire.QOS) >> 1

    def as_v5(self) -> bytes:
        """The same publication as a version 5 packet, with a meaningless packet id."""
        return wire.write_publish(
            self.topic.decode(),
            self.payload,
            version=V5,
            qos=self.qos,
            retain=bool(self.packet[0] & wire.RETAIN),
            packet_id=1,
            properties=wire.without(self.properties, wire.Property.TOPIC_ALIAS),
        )


def read_publication(packet: bytes, acked_ms: Millis) -> Publication | None:
    """Parse a publication reported by others; ``None`` if no client can have published it."""
    try:
        whole, packets = wire.Splitter(firsts=wire.FROM_CLIENT).feed(packet)
        if len(packets) != 1 or packets[0][3] != len(packet):
            return None
        if packet[0] & 0xF0 != Kind.PUBLISH or not packet[0] & wire.QOS:
            return None
        topic, _, _, alias = wire.read_publish(whole, packets[0], V5)
        if alias or not topic or topic.startswith("$"):
            return None
        return Publication("", packet, V5, acked_ms, *wire.read_payload(packet, V5))
    except MalformedError:
        return None


@dataclass(slots=True, eq=False)
class _Batch:
    """What was acknowledged to one client at once; parsed only when needed."""

    client: str
    version: Version
    acked_ms: Millis
    packets: tuple[bytes, ...]
    _publications: tuple[Publication, ...] | None = None

    @property
    def bytes(self) -> int:
        """Memory it takes, in bytes."""
        return sum(map(len, self.packets)) + OVERHEAD_BYTES * len(self.packets)

    @property
    def publications(self) -> tuple[Publication, ...]:
        """Each publication, parsed."""
        if self._publications is None:
            self._publications = tuple(
                Publication(
                    self.client,
                    packet,
                    self.version,
                    self.acked_ms,
                    *wire.read_payload(packet, self.version),
                )
                for packet in self.packets
            )
        return self._publications


@dataclass(slots=True)
class _Custody:
    """What the agent of one broker has in custody.

    Attributes:
        waiting: Batches that only this broker has, each with the mark that will cover it.
    """

    next_mark: int
    waiting: deque[tuple[int, _Batch]] = field(default_factory=deque)


class Journal:
    """The publications of all clients of one gateway.

    Args:
        recent_ms: How long each is kept.
        bytes_max: How many bytes are kept; the oldest are dropped first.
        first_mark: Greater than every mark of an earlier run: their answers may still arrive.
    """

    def __init__(self, *, recent_ms: int, bytes_max: int, first_mark: int = 1) -> None:
        self.bytes = 0
        self._recent_ms = recent_ms
        self._bytes_max = bytes_max
        self._all: deque[_Batch] = deque()
        self._custody: dict[BrokerId, _Custody] = defaultdict(lambda: _Custody(first_mark))

    def __len__(self) -> int:
        return sum(len(batch.packets) for batch in self._all)

    def between(self, from_ms: Millis, to_ms: Millis) -> Iterator[Publication]:
        """The publications acknowledged between the two times, inclusive, oldest first."""
        for batch in self._all:
            if from_ms <= batch.acked_ms <= to_ms:
                yield from batch.publications

    def acknowledged(
        self,
        packets: Iterable[bytes],
        *,
        client: str,
        version: Version,
        broker: BrokerId,
        now_ms: Millis,
        again: bool = False,
    ) -> None:
        """Keep ``packets`` of ``client``, as sent, that ``broker`` acknowledged.

        ``again``: another broker had acknowledged them before.
        """
        custody = self._custody[broker]
        batch = _Batch(client, version, now_ms, tuple(packets))
        custody.waiting.append((custody.next_mark, batch))
        if not again:
            self._all.append(batch)
            self.bytes += batch.bytes
            if self.bytes > self._bytes_max:
                self.forget(now_ms)

    def forget(self, now_ms: Millis) -> None:
        """Forget old batches, and those beyond the limit. To be called now and then."""
        every, oldest_ms = self._all, now_ms - self._recent_ms
        while every and (every[0].acked_ms < oldest_ms or self.bytes > self._bytes_max):
            self.bytes -= every.popleft().bytes
        first_ms = every[0].acked_ms if every else now_ms
        for custody in self._custody.values():
            while custody.waiting and custody.waiting[0][1].acked_ms < first_ms:
                custody.waiting.popleft()

    def mark(self, broker: BrokerId, *, anew: bool = False) -> int | None:
        """The number of a mark to send to ``broker`` now; ``None`` if it would cover nothing new.

        ``anew``: the last mark may be lost, so send another if anything waits.
        """
        custody = self._custody[broker]
        waiting = custody.waiting
        if not waiting or (waiting[-1][0] < custody.next_mark and not anew):
            return None
        custody.next_mark += 1
        return custody.next_mark - 1

    def last_mark(self, broker: BrokerId) -> int:
        """The number of the last mark for ``broker``."""
        return self._custody[broker].next_mark - 1

    def on_taken(self, broker: BrokerId, mark: int) -> None:
        """Note that the agent of ``broker`` has custody of all that ``mark`` covers."""
        custody = self._custody[broker]
        if mark < custody.next_mark:
            while custody.waiting and custody.waiting[0][0] <= mark:
                custody.waiting.popleft()

    def unsafe(self, broker: BrokerId) -> int:
        """How many publications are only known to be at ``broker``."""
        return sum(len(batch.packets) for _, batch in self._custody[broker].waiting)

    def take_unsafe(self, broker: BrokerId) -> dict[str, list[Publication]]:
        """Remove and return what the dead ``broker`` may have lost, by client, oldest first."""
        waiting = self._custody[broker].waiting
        by_client: dict[str, list[Publication]] = {}
        for _, batch in waiting:
            by_client.setdefault(batch.client, []).extend(batch.publications)
        waiting.clear()
        return by_client

"""All spools of a federation: whose head came, whose answer, what to ask and to land next.

A broker speaks for itself alone: its heads and answers reach its own spools and no others. A new
spool is a claim until it answered a question, and of those only the last few are remembered. The
one before it goes on being asked: its agent may still have its files, or says that it has not.

Source: docs/collector.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from federator.collector.position import Piece, Position, ReadingParameters, SpoolKey
from federator.protocol.effects import Notice
from federator.protocol.telemetry.reader import SKIPPED, read_again
from federator.protocol.telemetry.replay import Head
from federator.protocol.types import BrokerId, Millis

CLAIMS_MAX: Final = 4
"""Spools of one broker that never answered; the one that claimed longest ago is forgotten."""


@dataclass(frozen=True, slots=True)
class Question:
    """Ask ``broker`` for batches ``first`` to ``last`` of ``spool``."""

    broker: BrokerId
    spool: str
    first: int
    last: int


@dataclass(slots=True)
class CollectionCounters:
    """Counters beside those of the positions; ``app`` says what each is."""

    stray: int = 0
    no_room: int = 0


class Collection:
    """The positions of all spools.

    Args:
        landed: The last landed batch of every spool that has files.
        parameters: How to read.
        bytes_max: Of lines in memory. From half of it on everything is landed at once and nothing
            asked.
    """

    def __init__(
        self, landed: Mapping[SpoolKey, int], parameters: ReadingParameters, *, bytes_max: int
    ) -> None:
        self.landed = dict(landed)
        self.counters = CollectionCounters()
        self._parameters = parameters
        self._bytes_max = bytes_max
        self._positions: dict[BrokerId, dict[str, Position]] = {}
        self._reachable: set[BrokerId] = set()

    @property
    def bytes_held(self) -> int:
        """The bytes of lines in memory."""
        return sum(position.bytes for position in self.positions())

    def positions(self) -> Iterator[Position]:
        """Every spool of this run, by broker; of a broker's, the one that spoke last is last."""
        for _, spools in sorted(self._positions.items()):
            yield from spools.values()

    @property
    def settled(self) -> bool:
        """Whether nothing is in memory."""
        return all(position.settled for position in self.positions())

    # -- what connections tell -------------------------------------------------------------------

    def on_up(self, broker: BrokerId) -> None:
        """``broker`` can be asked."""
        self._reachable.add(broker)

    def on_down(self, broker: BrokerId) -> None:
        """``broker`` cannot be asked: what was asked is not answered any more."""
        self._reachable.discard(broker)
        for position in self._positions.get(broker, {}).values():
            position.reader.forget_question()

    def on_head(self, head: Head) -> list[Notice]:
        """What came on the head topic of the broker that it names."""
        position = self._of(head)
        position.reader.on_head(head.first, head.last)
        if head.last >= position.taken:
            return []
        what: dict[str, int | str] = {"broker": head.broker, "spool": head.spool}
        what |= {"last": head.last, "taken": position.taken}
        return [Notice("collector.spool_went_back", "error", what)]

    def on_answer(
        self, broker: BrokerId, payload: bytes, *, now_ms: Millis, wall_us: int
    ) -> list[Notice]:
        """What came on our own topic at ``broker``.

        Raises:
            DecodeError: It is no answer, or not about what its first line says.
        """
        again, lines = read_again(payload)
        position = self._positions.get(broker, {}).get(again.spool)
        if position is None:
            self.counters.stray += 1
            return []
        if self.bytes_held + len(payload) > self._bytes_max:
            self.counters.no_room += 1
            position.reader.break_off(now_ms=now_ms)
            return []
        began = position.begun
        position.on_answer(again, lines, now_ms=now_ms, wall_us=wall_us)
        if began or not position.begun:
            return []
        return [Notice("collector.spool_begun", "info", {"broker": broker, "spool": again.spool})]

    def _of(self, head: Head) -> Position:
        """The position of the spool of ``head``, now the last one of its broker."""
        broker = BrokerId(head.broker)
        spools = self._positions.setdefault(broker, {})
        position = spools.pop(head.spool, None)
        if position is None:
            claims = [spool for spool, each in spools.items() if not each.begun]
            if len(claims) >= CLAIMS_MAX:
                del spools[claims[0]]
            key = broker, head.spool
            position = Position(key, self.landed.get(key, 0), self._parameters)
        spools[head.spool] = position
        return position

    # -- what to do ------------------------------------------------------------------------------

    def due(self, *, now_ms: Millis, all_: bool = False) -> list[Question | Piece]:
        """What to ask and to land now; with ``all_`` we stop: land everything, and ask nothing.

        What becomes of a piece is told by ``on_landed`` or ``on_land_failed``.
        """
        orders: list[Question | Piece] = []
        crowded = 2 * self.bytes_held > self._bytes_max
        for position in self.positions():
            broker, spool = position.key
            piece = position.to_land(now_ms=now_ms, all_=all_ or crowded)
            if piece is not None:
                orders.append(piece)
            if broker in self._reachable and not (all_ or crowded):
                asked = position.question(now_ms=now_ms)
                if asked is not None:
                    orders.append(Question(broker, spool, *asked))
        return orders

    def on_landed(self, piece: Piece) -> list[Notice]:
        """``piece`` is in its place."""
        broker, spool = piece.key
        self.landed[piece.key] = piece.last
        self._positions[broker][spool].on_landed()
        if piece.gap is None:
            return []
        what: dict[str, int | str] = {"broker": broker, "spool": spool}
        what |= {"first": piece.first, "last": piece.last}
        if piece.gap == SKIPPED:
            return [Notice("collector.skip", "info", what)]
        return [Notice("collector.gap", "warning", what | {"reason": piece.gap})]

    def on_land_failed(self, piece: Piece, *, now_ms: Millis) -> None:
        """``piece`` is not in its place."""
        broker, spool = piece.key
        self._positions[broker][spool].on_land_failed(now_ms=now_ms)

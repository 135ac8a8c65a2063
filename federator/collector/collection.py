"""All spools of a federation: handles heads and answers, decides what to request and to land next.

A broker's heads and answers reach its own spools and no others. A new spool is a claim until it
answers a request, and only the last few claims are remembered. The spool before it is still asked:
its agent may still have its files, or answers that it has not.

Source: docs/collector.md.
"""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from federator.collector.position import Piece, Position, ReadingParameters, SpoolKey
from federator.protocol.effects import Notice
from federator.protocol.telemetry.reader import SKIPPED, read_again
from federator.protocol.telemetry.replay import Head
from federator.protocol.types import BrokerId, Millis

CLAIMS_MAX: Final = 4
"""Spools of one broker that never answered; the oldest claim is forgotten."""


@dataclass(frozen=True, slots=True)
class Question:
    """Ask ``broker`` for batches ``first`` to ``last`` of ``spool``."""

    broker: BrokerId
    spool: str
    first: int
    last: int


@dataclass(eq=False, repr=False)
class Collection:
    """The positions of all spools.

    Args:
        landed: The last landed batch of every spool that has files.
        bytes_max: Limit of lines in memory. From half of it on everything is landed at once and
            nothing requested.

    Attributes:
        stray: Answers about a spool that no head named.
        no_room: Answers dropped for lack of room.
    """

    landed: dict[SpoolKey, int]
    parameters: ReadingParameters
    _: KW_ONLY
    bytes_max: int
    stray: int = field(default=0, init=False)
    no_room: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._positions: dict[BrokerId, dict[str, Position]] = {}
        self._reachable: set[BrokerId] = set()

    @property
    def bytes_held(self) -> int:
        return sum(position.bytes for position in self.positions())

    def positions(self) -> Iterator[Position]:
        """Every spool of this run, by broker; a broker's spool with the newest head is last."""
        for _, spools in sorted(self._positions.items()):
            yield from spools.values()

    @property
    def settled(self) -> bool:
        return all(position.settled for position in self.positions())

    # -- events of connections -------------------------------------------------------------------

    def on_up(self, broker: BrokerId) -> None:
        self._reachable.add(broker)

    def on_down(self, broker: BrokerId) -> None:
        """Note that ``broker`` cannot be asked: open requests are no longer answered."""
        self._reachable.discard(broker)
        for position in self._positions.get(broker, {}).values():
            position.reader.forget_question()

    def on_head(self, head: Head) -> list[Notice]:
        """Handle a head, received on the head topic of the broker that it names."""
        position = self._of(head)
        position.reader.on_head(head.first, head.last)
        if head.last >= position.reader.taken:
            return []
        what: dict[str, int | str] = {"broker": head.broker, "spool": head.spool}
        what |= {"last": head.last, "taken": position.reader.taken}
        return [Notice("collector.spool_went_back", "error", what)]

    def on_answer(
        self, broker: BrokerId, payload: bytes, *, now_ms: Millis, wall_us: int
    ) -> list[Notice]:
        """Handle a payload received on our own topic at ``broker``.

        Raises:
            DecodeError: It is no answer, or does not match its first line.
        """
        again, lines = read_again(payload)
        position = self._positions.get(broker, {}).get(again.spool)
        if position is None:
            self.stray += 1
            return []
        if self.bytes_held + len(payload) > self.bytes_max:
            self.no_room += 1
            position.reader.break_off(now_ms=now_ms)
            return []
        had_any = position.reader.taken > 0
        position.on_answer(again, lines, now_ms=now_ms, wall_us=wall_us)
        if had_any or not position.reader.taken:
            return []
        return [Notice("collector.spool_begun", "info", {"broker": broker, "spool": again.spool})]

    def _of(self, head: Head) -> Position:
        """The position of the spool of ``head``, now the last one of its broker."""
        broker = BrokerId(head.broker)
        spools = self._positions.setdefault(broker, {})
        position = spools.pop(head.spool, None)
        if position is None:
            claims = [spool for spool, candidate in spools.items() if not candidate.reader.taken]
            if len(claims) >= CLAIMS_MAX:
                del spools[claims[0]]
            key = broker, head.spool
            position = Position(key, self.landed.get(key, 0), self.parameters)
        spools[head.spool] = position
        return position

    # -- what to do ------------------------------------------------------------------------------

    def due(self, *, now_ms: Millis, all_: bool = False) -> list[Question | Piece]:
        """What to request and to land now; ``all_`` at the end: land everything, request nothing.

        The caller reports the outcome of a piece to ``on_landed`` or ``on_land_failed``.
        """
        orders: list[Question | Piece] = []
        crowded = 2 * self.bytes_held > self.bytes_max
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
        broker, spool = piece.key
        self._positions[broker][spool].on_land_failed(now_ms=now_ms)

"""Which batches a query has read, and which come next: arithmetic on (broker, spool, batch).

Idea: a position says ``first`` and ``last`` of what the query takes from one spool, ``first`` being
where it once began. It stays in the offset for ever, so that two offsets alone say which batches
lie between them, also when a spool was met for the first time, also after a restart on which the
beginning is asked for anew. That is what makes re-reading a batch read the same again.

Offsets are nested dicts because Spark keeps them as JSON: ``{broker: {spool: {first, last}}}``.
"""

from collections.abc import Iterable
from dataclasses import dataclass

Position = dict[str, int]
Offsets = dict[str, dict[str, Position]]


@dataclass(frozen=True, slots=True)
class Held:
    """Batches ``first`` to ``last`` of a spool, both included; none when ``last < first``."""

    broker: int
    spool: str
    first: int
    last: int


def past(heads: Iterable[Held]) -> Offsets:
    """The offset behind everything that ``heads`` hold."""
    offsets: Offsets = {}
    for head in heads:
        _put(offsets, head, {"first": head.last + 1, "last": head.last})
    return offsets


def advance(start: Offsets, heads: Iterable[Held], *, batches_max: int | None) -> Offsets:
    """The offset after ``start``, at most ``batches_max`` held batches further in each spool.

    What is no longer held does not count: however much was lost, reading goes on behind it.
    """
    end: Offsets = {broker: dict(spools) for broker, spools in start.items()}
    for head in heads:
        before = start.get(str(head.broker), {}).get(head.spool)
        if before is None and head.last < head.first:
            continue  # an empty spool: where it begins is not known yet
        first = before["first"] if before else head.first
        read = before["last"] if before else head.first - 1
        last = head.last
        if batches_max is not None:
            last = min(last, max(read, head.first - 1) + batches_max)
        _put(end, head, {"first": first, "last": max(read, last)})
    return end


def between(start: Offsets, end: Offsets) -> list[Held]:
    """The batches after ``start`` up to ``end``, per spool, in a fixed order.

    A start that has read nothing of a spool (``last < first``) says nothing of where to begin:
    it may have been made anew after a restart, and ``end`` knows better.
    """
    found = []
    for broker, spools in sorted(end.items(), key=lambda item: int(item[0])):
        for spool, position in sorted(spools.items()):
            before = start.get(broker, {}).get(spool)
            first = position["first"]
            if before is not None and before["last"] >= before["first"]:
                first = before["last"] + 1
            if first <= position["last"]:
                found.append(Held(int(broker), spool, first, position["last"]))
    return found


def _put(offsets: Offsets, head: Held, position: Position) -> None:
    offsets.setdefault(str(head.broker), {})[head.spool] = position

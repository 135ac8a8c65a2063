"""What a broker knows of one topic: ways, a spare one, who feeds it, whom it feeds.

A neighbour that lies on our way can do nothing with it: whoever follows would go in a circle. It is
told our **spare** way instead, what ours would be if that neighbour were not there. Nobody follows
one; but from spare ways, passed on like others, a broker through which all ways around it lead
learns what it would cost to be fed from the other side.

Without the link that feeds it a broker goes another way itself, and takes everybody below with it;
or some of those below go ways of their own, which they have told, and which must not lead over this
broker. Each takes the cheaper: that is what the broker would **lose**.
"""

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from lab.papers.pricing.holding import Hold
from lab.papers.pricing.messages import Route, Want

LOYALTY = 0.02  # share by which the arc in use looks shorter, at first


@dataclass(slots=True)
class TopicState:
    """What a broker knows of one topic."""

    seq: int = -1  # newest number heard
    heard: dict[int, Route] = field(default_factory=dict)  # each neighbour's last word under seq
    lengths: dict[int, float] = field(default_factory=dict)  # of neighbours' arcs, frozen for seq
    cost: float = math.inf  # best way under ``seq``
    best: int | None = None  # the neighbour it leads over
    parent: int | None = None  # who feeds us, or would
    dear: bool = False  # whether the way costs as much as leaving local clients out
    loyalty: float = LOYALTY  # to the parent, as a share of its arc's length
    # Neighbours that we feed, and the round in which they last asked.
    children: dict[int, int] = field(default_factory=dict)
    below: dict[int, Want] = field(default_factory=dict)  # what hangs on each of them
    hurried: int = -1  # round in which somebody who is to leave a link last asked for a new number
    hold: Hold = field(default_factory=Hold)  # what keeps ``parent``
    # Cost of the spare way that each neighbour on ours was last told.
    spares: dict[int, float] = field(default_factory=dict)

    def drop(self, child: int) -> None:
        del self.children[child], self.below[child]

    def weigh(self, penalty: float) -> None:
        """Judge whether the way under ``seq`` is dear, by what an unmet request costs."""
        if self.best is not None:
            self.dear = self.cost >= penalty
        elif self.parent is not None and self.lengths.get(self.parent) == math.inf:
            self.dear = True

    def way(self, neighbour: int) -> float:
        return self.heard[neighbour].cost + self.lengths[neighbour]

    def around(self, neighbour: int, *, broker: int) -> tuple[float, int | None]:
        """What ``broker``, whose state this is, would pay without ``neighbour``, and over whom."""
        best, least = None, math.inf
        for other, route in self.heard.items():
            barred = other == neighbour or neighbour in route.path or broker in route.path
            if not barred and self.way(other) < least:
                best, least = other, self.way(other)
        return least, best

    def unaware(self, neighbours: Container[int], *, broker: int) -> set[int]:
        """Those ``neighbours`` on ``broker``'s way who were not told its spare way as it is now."""
        if self.best is None:
            return set()
        return {
            each
            for each in self.heard[self.best].path
            if each in neighbours
            and self.around(each, broker=broker)[0] != self.spares.get(each, math.inf)
        }


@dataclass(frozen=True, slots=True)
class Detour:
    """Another way, over a neighbour that does not feed us."""

    extra: float  # what a request would pay more, in mean costs of an arc, not negative
    path: tuple[int, ...]  # brokers it leads over


NO_WAY = Detour(math.inf, ())


def want(
    detours: Sequence[Detour], below: Sequence[Want], *, parent: int, here: int, hurry: bool
) -> Want:
    """What to tell ``parent`` about a topic, for which we have so many clients ``here``, 0 or 1.

    No detour leads over us; ``below`` is what our children told, less those whose ways do.
    """
    extra = attrgetter("extra")
    nearest = min(detours, key=extra, default=NO_WAY)
    around = min((d for d in detours if parent not in d.path), key=extra, default=NO_WAY)
    requests = here + sum(child.requests for child in below)
    loss, _ = _lost(nearest, below, here=here)
    bound = (Want(child.requests, child.loss) if parent in child.over else child for child in below)
    apart, over = _lost(around, bound, here=here)
    return Want(requests, loss, apart, over, hurry)


def _lost(way: Detour, below: Iterable[Want], *, here: int) -> tuple[float, frozenset[int]]:
    """What all lose together, and over whom their ways lead."""
    lost = way.extra if here else 0.0
    over = set(way.path) if here else set()
    for child in below:
        together = way.extra * max(1, child.requests)
        lost += min(child.apart, together)
        over.update(child.over if child.apart < together else way.path)
    return lost, frozenset(over)

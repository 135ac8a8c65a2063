"""What a broker would lose without the link that feeds it.

It goes another way itself, and takes everybody below with it; or some of those below go ways of
their own, which they have told, and which must not lead over this broker. Each takes the cheaper.

Source: docs/planner.md 5.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from lab.papers.pricing.messages import Want


@dataclass(frozen=True, slots=True)
class Detour:
    """Another way, over a neighbour that does not feed us."""

    extra: float  # what a request would pay more, in mean costs of an arc, not negative
    path: tuple[int, ...]  # brokers it leads over


NO_WAY = Detour(math.inf, ())


def want(
    detours: Sequence[Detour], below: Sequence[Want], *, parent: int, here: int, hurry: bool
) -> Want:
    """What to tell ``parent`` about a topic.

    Args:
        detours: None of them leads over us.
        below: What our children told us, less those whose ways lead over us.
        here: 1 if we have a client for the topic ourselves, else 0.
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

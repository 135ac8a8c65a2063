"""Tells a story to its end, or to the first violation; what must become true, and by when."""

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from lab.sim.agenda import RunawayError
from lab.sim.parts import InvariantError
from lab.sim.story import Story
from lab.sim.world import World

CHECK_EVERY_MS = 250
COMPLAINTS_SHOWN_MAX = 8


@dataclass(frozen=True, slots=True)
class Violation:
    """What went wrong in a seed, and just before."""

    invariant: str
    detail: str
    at_ms: int
    last_events: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One seed's outcome."""

    seed: int
    topology: str
    nodes: int
    converged_ms: int | None  # time from healing to convergence, or ``None``
    bound_ms: int  # what it was allowed
    fired: dict[str, int] = field(default_factory=dict)  # how often: faults, messages, notices
    calls: int = 0  # calls on the world's agenda: what the seed cost
    violation: Violation | None = None


@dataclass(frozen=True, slots=True)
class Tale:
    """A story that is ready to be told."""

    world: World
    bound_ms: int  # within which the federation must stand after healing
    acts: Iterator[int]  # yields once, when that stands: how long it took, in ms


def tell(story: Story, tale: Tale) -> SeedResult:
    """Play all acts to their end or to the first violation."""
    world, converged_ms, violation = tale.world, None, None
    try:
        converged_ms = next(tale.acts)
        next(tale.acts, None)
    except Exception as error:  # Whatever the protocol raises is a finding, not the end.
        violation = _violation_of(world, error)
    return SeedResult(
        story.seed,
        story.topology,
        len(story.plan.ids),
        converged_ms,
        tale.bound_ms,
        fired=dict(sorted(world.fired.items())),
        calls=world.agenda.calls_made,
        violation=violation,
    )


Wrong = Callable[[], Iterable[str]]
"""What is not as it must become."""


def demand(invariant: str, found: Iterable[str]) -> None:
    """Raise ``InvariantError`` when there are complaints, with the first few."""
    first = list(islice(found, COMPLAINTS_SHOWN_MAX))
    if first:
        raise InvariantError(invariant, "; ".join(first))


def stand(
    world: World,
    wrong: Mapping[str, Wrong],
    *,
    until_ms: int,
    every_ms: int = CHECK_EVERY_MS,
    calm_ms: int = 0,
) -> int:
    """Run until nothing is wrong, and is not for ``calm_ms``; since when.

    ``wrong``: what is, by the name of the invariant that is violated if it still is ``until_ms``.
    """
    since_ms: int | None = None
    while True:
        if any(next(iter(found()), None) is not None for found in wrong.values()):
            since_ms = None
        elif since_ms is None:
            since_ms = world.now_ms
        if since_ms is not None and world.now_ms - since_ms >= calm_ms:
            return since_ms
        if world.now_ms >= until_ms:
            for invariant, found in wrong.items():
                demand(invariant, found())
        world.run_until(world.now_ms + every_ms)


def _violation_of(world: World, error: Exception) -> Violation:
    if isinstance(error, InvariantError):
        invariant, detail = error.invariant, error.detail
    elif isinstance(error, RunawayError):
        invariant, detail = "no_storm", str(error)
    else:
        where = traceback.extract_tb(error.__traceback__)[-1]
        invariant = "nothing_raises"
        detail = f"{error!r} at {where.filename}:{where.lineno} in {where.name}"
    events = tuple(f"{at_ms:>8} ms  {id:>4}  {what}" for at_ms, id, what in world.trace)
    return Violation(invariant, detail, world.now_ms, events)

"""Makes a failing story short: leave out whatever it fails without.

A story is data and a run depends on nothing else, so any part can be left out and the rest told
again. Whole halves of a list are tried first, then quarters, and so on down to single items; a
shorter story counts only when it breaks the same invariant.

Source: A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE
28(2), 2002 (delta debugging).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice

from lab.sim.story import PARTS, Story, simpler
from lab.sim.tale import SeedResult

RUNS_MAX = 400


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The shortest story found."""

    story: Story
    result: SeedResult  # what it does
    runs: int  # stories told to find it


def shrink(
    run: Callable[[Story], SeedResult],
    story: Story,
    result: SeedResult,
    *,
    runs_max: int = RUNS_MAX,
) -> Shrunk:
    """The shortest story found from ``story``, which violates something: ``result``."""
    assert result.violation is not None, "only failures are shrunk"
    runs, improved = 0, True
    while improved and runs < runs_max:
        improved = False
        for candidate in islice(chain(_shorter(story), simpler(story)), runs_max - runs):
            runs += 1
            found = run(candidate)
            same = found.violation
            if same is not None and same.invariant == result.violation.invariant:
                story, result, improved = candidate, found, True
                break
    return Shrunk(story, result, runs)


def _shorter(story: Story) -> Iterator[Story]:
    """Stories with items left out, the shortest first."""
    lists = {part: getattr(story, part) for part in PARTS}
    size = max((len(items) for items in lists.values()), default=0)
    while size:
        for part, items in lists.items():
            for start in range(0, len(items) if size <= len(items) else 0, size):
                shorter = {part: items[:start] + items[start + size :]}
                yield replace(story, **shorter)
        size //= 2

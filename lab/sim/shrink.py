"""Makes a failing story short: leave out whatever it fails without.

A story is data and a run depends on nothing else, so any part can be left out and the rest told
again. Whole halves of a list are tried first, then quarters, and so on down to single items; a
shorter story counts only when it breaks the same invariant.

Source: A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE
28(2), 2002 (delta debugging).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from lab.sim.campaign import SeedResult

RUNS_MAX = 400

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Shrunk(Generic[S]):
    """The shortest story found."""

    story: S
    result: SeedResult  # what it does
    runs: int  # stories told to find it


class Shrinker(Generic[S]):
    """Looks for a shorter story that fails in the same way, in at most ``runs_max`` runs.

    Args:
        parts: The names of the story's lists whose items can be left out.
        simpler: Other ways to make a story simpler.
    """

    def __init__(
        self,
        run: Callable[[S], SeedResult],
        *,
        parts: Sequence[str],
        simpler: Callable[[S], Iterable[S]] = lambda story: (),
        runs_max: int = RUNS_MAX,
    ) -> None:
        self._run = run
        self._parts = parts
        self._simpler = simpler
        self._runs_max = runs_max
        self._runs = 0

    def shrink(self, story: S, result: SeedResult) -> Shrunk[S]:
        """The shortest story found from ``story``, which violates something: ``result``."""
        assert result.violation is not None, "only failures are shrunk"
        self._runs = 0
        improved = True
        while improved and self._runs < self._runs_max:
            improved = False
            for candidate in self._candidates(story):
                if self._runs >= self._runs_max:
                    break
                self._runs += 1
                found = self._run(candidate)
                same = found.violation
                if same is not None and same.invariant == result.violation.invariant:
                    story, result, improved = candidate, found, True
                    break
        return Shrunk(story, result, self._runs)

    def _candidates(self, story: S) -> Iterator[S]:
        """Shorter stories, the shortest first."""
        lists = {part: getattr(story, part) for part in self._parts}
        size = max((len(items) for items in lists.values()), default=0)
        while size:
            for part, items in lists.items():
                for start in range(0, len(items) if size <= len(items) else 0, size):
                    yield _with(story, part, items[:start] + items[start + size :])
            size //= 2
        yield from self._simpler(story)


def _with(story: S, part: str, items: Any) -> S:  # noqa: ANN401
    changed: S = replace(story, **{part: items})  # type: ignore[type-var]
    return changed

"""Which injuries come after which: drawn from the seed alone, never from what the clock says.

A fault bends no promise: the ledger decides message by message what a dead broker took with it, so
classes can be mixed (docs/guarantees.md). Rounds follow each other without end. In each, every
class comes once, in a drawn order, and mixtures of two or three injuries come between; the run
takes as many as it has time for. Injuries of a mixture have different victims and begin a little
apart, so their order differs from one to the next.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lab.chaos.link_faults import LINK_FAULTS
from lab.chaos.process_faults import PROCESS_FAULTS
from lab.chaos.stage import Injury, Kind, Stage, soon
from lab.chaos.strangers import STRANGERS

QUIET_S: Final = 3.0


def _draw_none(stage: Stage, rng: random.Random) -> Injury:
    hold_s = stage.span_s(rng, (QUIET_S,))
    nothing, felt = soon(lambda: None), soon(lambda: True)
    return Injury("none", frozenset(), "a quiet time", hold_s, nothing, nothing, felt)


KINDS: Final = {
    kind.name: kind
    for kind in (Kind("none", "no fault", _draw_none), *LINK_FAULTS, *PROCESS_FAULTS, *STRANGERS)
}
"""Every class by name, in the order they are listed."""

MIXED: Final = "mixed"
"""Several classes at once; drawn when not told otherwise."""


MIXTURE: Final = (2, 3)
"""Injuries at once."""

SPREAD_S: Final = 3.0
"""Between the first and the last beginning in a mixture, at most."""

MIXTURES_SHARE: Final = 4
"""One mixture for so many classes, at least one a round."""

DRAWS_MAX: Final = 20
"""Attempts to find victims that are not taken yet."""


@dataclass(frozen=True, slots=True)
class Episode:
    """Injuries that are inflicted, healed, and recovered from before the next episode."""

    phase: str  # the class it is counted under
    injuries: tuple[tuple[float, Injury], ...]  # each with the seconds to wait before it
    round: int  # in which it comes, from 0

    def __str__(self) -> str:
        return "; ".join(str(injury) for _, injury in self.injuries)


def episodes(classes: Sequence[str], stage: Stage, rng: random.Random) -> Iterator[Episode]:
    """Rounds of episodes of ``classes``, for ever."""
    single = [name for name in classes if name != MIXED]
    mixtures = max(1, len(single) // MIXTURES_SHARE) if MIXED in classes else 0
    pool = [name for name in single if name != "none"] or [
        name for name, kind in KINDS.items() if name != "none" and not kind.lacks(stage)
    ]
    for turn in itertools.count():
        names = [*single, *[MIXED] * mixtures]
        rng.shuffle(names)
        for name in names:
            if name == MIXED:
                yield Episode(MIXED, _mixture(pool, stage, rng), turn)
            else:
                yield Episode(name, ((0.0, KINDS[name].draw(stage, rng)),), turn)


def _mixture(
    pool: Sequence[str], stage: Stage, rng: random.Random
) -> tuple[tuple[float, Injury], ...]:
    chosen: list[tuple[float, Injury]] = []
    taken: set[str] = set()
    wanted = rng.choice(MIXTURE)
    for _ in range(DRAWS_MAX):
        if len(chosen) == wanted:
            break
        injury = KINDS[rng.choice(pool)].draw(stage, rng)
        if not injury.victims & taken:
            taken |= injury.victims
            chosen.append((round(rng.uniform(0, SPREAD_S), 1) if chosen else 0.0, injury))
    return tuple(chosen)

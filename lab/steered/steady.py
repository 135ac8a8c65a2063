"""Minutes of a demand that is the same but for noise, then a burst, then a shift that lasts.

Rates change each second, by a fifth of themselves as a rule. After the first minute a flow may move
once in five minutes; a burst of two seconds moves nothing; a shift that overloads a link is
followed, so that no link is too full.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import Final

from lab.grid.running import RunningGrid
from lab.steered.run import (
    CAPACITY,
    DEMANDS,
    KNOWN_AFTER_S,
    narrow_grid,
    places_in,
    rates_over,
    steerer_of,
)
from lab.steered.traffic import Arrived, Demand, Flows, flowing
from lab.steered.verdicts import FULLEST_MAX, Verdict

NOISE: Final = 0.2
SETTLING_S: Final = 60.0
PERIOD_S: Final = 300.0
BURST_S: Final = 2.0
WATCHED_S: Final = 30.0
"""After a burst, in which nothing may move; and within which a shift is to be followed."""

SHIFTED: Final = DEMANDS[1]
TIMES: Final = 1.85
"""What it becomes, in a burst and in the shift: more than its link has beside what moved there."""

MEASURED_S: Final = 8.0


@dataclass(slots=True)
class Moved:
    """A flow that moved, seconds after the steerer began."""

    seconds: float
    flow: str


@dataclass(eq=False)
class Steady:
    """What came of it."""

    seconds: float  # of steady demand, after the first minute
    moves: list[Moved] = field(default_factory=list)
    burst_s: float = 0.0  # when it was
    shift_s: float = 0.0
    fullest_shifted: float = 0.0  # before the shift was followed, and
    fullest_after: float = 0.0  # after the time in which it is to be
    lost: int = 0  # of what was published then
    sent: int = 0


class _Noise:
    """Shares of rates that change each second, the same for a demand within it."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.times: dict[Demand, float] = {}

    def __call__(self, demand: Demand) -> float:
        rng = random.Random(f"{self._seed} {demand.topic} {int(time.monotonic())}")
        return max(0.3, rng.gauss(1.0, NOISE)) * self.times.get(demand, 1.0)


async def stay_steady(
    folder: Path, *, seconds: float, seed: int, progress: Callable[[str], None]
) -> Steady:
    """Do all of it. Raises ``LinkError``: something did not start."""
    found = Steady(seconds)
    async with narrow_grid(folder) as grid, flowing(places_in(grid), DEMANDS) as flows:
        await asyncio.sleep(KNOWN_AFTER_S)
        noise = _Noise(seed)
        async with steerer_of(grid, folder / "steerer") as steerer:
            begun_s, begun = time.monotonic(), time.time()
            await _publish(flows, noise, found, grid, begun_s, progress)
            log = steerer.log_path.read_text()
    found.moves = list(moves_in(log, begun))
    return found


async def _publish(
    flows: Flows,
    noise: _Noise,
    found: Steady,
    grid: RunningGrid,
    begun_s: float,
    progress: Callable[[str], None],
) -> None:
    def publishing(seconds: float) -> asyncio.Task[Mapping[Demand, Arrived]]:
        """Seamless: the next begins when this one's publications end, not when all have come."""
        return asyncio.create_task(flows.spell(seconds, noise), name="publishing")

    settling = publishing(SETTLING_S)
    await asyncio.sleep(SETTLING_S)
    steady = publishing(found.seconds)
    await asyncio.sleep(found.seconds)
    found.burst_s = time.monotonic() - begun_s
    noise.times[SHIFTED] = TIMES
    watched = publishing(WATCHED_S)
    await asyncio.sleep(BURST_S)
    noise.times.clear()
    await asyncio.sleep(WATCHED_S - BURST_S)
    arrived = (await steady).values()
    found.lost, found.sent = sum(a.lost for a in arrived), sum(a.sent for a in arrived)
    progress(f"{found.seconds:.0f} s of steady demand: {found.lost} of {found.sent} lost")
    found.shift_s = time.monotonic() - begun_s
    noise.times[SHIFTED] = TIMES
    shifted = publishing(WATCHED_S + 2 * MEASURED_S)
    found.fullest_shifted = max((await rates_over(grid, MEASURED_S)).values()) / CAPACITY
    await asyncio.sleep(WATCHED_S - MEASURED_S)
    found.fullest_after = max((await rates_over(grid, MEASURED_S)).values()) / CAPACITY
    await asyncio.gather(settling, watched, shifted)


def moves_in(log: str, begun: float) -> Iterator[Moved]:
    """The moves of which a steerer's log tells; ``begun`` by the wall clock."""
    for line in log.splitlines():
        if '"steer.moved"' in line:
            told = json.loads(line)
            at = datetime.fromisoformat(told["timestamp"]).timestamp()
            yield Moved(at - begun, f"{told['origin']}: {told['filters'][0]}")


def verdicts(found: Steady) -> Iterator[Verdict]:
    """What was to be shown, and whether it was."""
    steady = [each for each in found.moves if SETTLING_S <= each.seconds < found.burst_s]
    counts = Counter(each.flow for each in steady)
    allowed = ceil(found.seconds / PERIOD_S)
    most = max(counts.values(), default=0)
    yield Verdict(
        f"{len(steady)} moves between the first minute and {found.burst_s:.0f} s, {most} of one"
        f" flow at most (wanted <= {allowed})",
        most <= allowed,
    )
    yield Verdict(f"{found.lost} of {found.sent} lost meanwhile (wanted 0)", found.lost == 0)
    burst = [each for each in found.moves if found.burst_s <= each.seconds < found.shift_s]
    yield Verdict(f"{len(burst)} moves after a burst of {BURST_S:.0f} s (wanted 0)", not burst)
    shift = [each.seconds - found.shift_s for each in found.moves if each.seconds >= found.shift_s]
    when = f"moved after {min(shift):.0f} s" if shift else "nothing moved"
    yield Verdict(
        f"a lasting shift: {when}; the fullest link {found.fullest_shifted:.0%} at first,"
        f" {found.fullest_after:.0%} from {WATCHED_S:.0f} s on (wanted <= {FULLEST_MAX:.0%})",
        found.fullest_after <= FULLEST_MAX,
    )

"""Minutes of a demand that is the same but for noise, then a burst, then a shift that lasts.

Rates change each second, by a fifth of themselves as a rule. After the first minute a flow may move
once in five minutes; a burst of two seconds moves nothing; a shift that overloads a link is
followed, so that no link is too full. The shift goes by where flows lie then: of those over the
link that was too full by shortest paths, the lightest grows until that link would be too full
again, while the flow that fills the way round it falls, so that there is room.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from pathlib import Path
from typing import Final

from federator.protocol.types import BrokerId
from lab.frame.experiment import Judged, Tell, Verdict, experiment
from lab.frame.settings import setting
from lab.grid.processes.daemons import SteererProcess
from lab.grid.running import RunningGrid
from lab.steered.demands import NETWORK, ways_of
from lab.steered.narrow import (
    CAPACITY,
    DEMANDS,
    FULLEST_MAX,
    KNOWN_AFTER_S,
    narrow_grid,
    rates_over,
    steerer_of,
)
from lab.steered.traffic import Arrived, Demand, Flows, flowing

NOISE: Final = 0.2
SETTLING_S: Final = 60.0
PERIOD_S: Final = 300.0
BURST_S: Final = 2.0
WATCHED_S: Final = 30.0
"""After a burst, in which nothing may move; and within which a shift is to be followed."""

JAMMED: Final = NETWORK.at[BrokerId(1), BrokerId(2)]
OVERLOAD: Final = 1.08
"""Of that link's capacity, what the burst and the shift ask of it."""

FRAMED: Final = 1.05
"""Bytes on the wire for one of payload."""

YIELDING: Final = DEMANDS[3]
YIELDED: Final = 0.2
"""It goes the way round, and this share of it is left after the shift."""

MEASURED_S: Final = 8.0
MEASURED_AFTER_S: Final = 20.0
"""How long a shift that was followed is looked at: noise adds some 4 % of a link to 8 s."""


@dataclass(slots=True)
class Moved:
    """A flow that moved, seconds after the steerer began."""

    seconds: float
    flow: str


@dataclass(frozen=True, slots=True)
class Settings:
    """How long nothing changes but for noise."""

    minutes: float = setting(10.0, "Of steady demand.", 0.1, 120)
    seed: int = setting(1, "Of the noise.")


@dataclass(eq=False)
class Steady(Judged):
    """How flows moved in steady minutes, at a burst, and after a shift."""

    seconds: float  # of steady demand, after the first minute
    moves: list[Moved] = field(default_factory=list)
    burst_s: float = 0.0  # when it was
    shift_s: float = 0.0
    asked: float = 0.0  # of the link by the shift, over its capacity, by the ways that flows had
    fullest_shifted: float = 0.0  # before the shift was followed, and
    fullest_after: float = 0.0  # after the time in which it is to be
    lost: int = 0  # of what was published then
    sent: int = 0

    def verdicts(self) -> Iterator[Verdict]:
        steady = [each for each in self.moves if SETTLING_S <= each.seconds < self.burst_s]
        counts = Counter(each.flow for each in steady)
        allowed = ceil(self.seconds / PERIOD_S)
        most = max(counts.values(), default=0)
        yield Verdict(
            f"{len(steady)} moves between the first minute and {self.burst_s:.0f} s, {most} of one"
            f" flow at most (wanted <= {allowed})",
            most <= allowed,
        )
        yield Verdict(f"{self.lost} of {self.sent} lost meanwhile (wanted 0)", self.lost == 0)
        burst = [each for each in self.moves if self.burst_s <= each.seconds < self.shift_s]
        yield Verdict(f"{len(burst)} moves after a burst of {BURST_S:.0f} s (wanted 0)", not burst)
        shift = [each.seconds - self.shift_s for each in self.moves if each.seconds >= self.shift_s]
        when = f"moved after {min(shift):.0f} s" if shift else "nothing moved"
        yield Verdict(
            f"a lasting shift to {self.asked:.0%} of a link: {when}; the fullest link"
            f" {self.fullest_shifted:.0%} at first, {self.fullest_after:.0%} from"
            f" {WATCHED_S:.0f} s on (wanted <= {FULLEST_MAX:.0%})",
            self.asked > 1 and self.fullest_after <= FULLEST_MAX,
        )


class _Noise:
    """Shares of rates that change each second, the same for a demand within it."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.times: dict[Demand, float] = {}

    def __call__(self, demand: Demand) -> float:
        rng = random.Random(f"{self._seed} {demand.topic} {int(time.monotonic())}")
        return max(0.3, rng.gauss(1.0, NOISE)) * self.times.get(demand, 1.0)


async def run(settings: Settings, folder: Path, tell: Tell) -> Steady:
    """Watch a steerer of six real brokers while nothing changes but for noise; then something does.

    Rates are noisy by 20 %. After the first minute and the minutes told: a burst of two seconds,
    and a shift that lasts. Exits 0 when each flow moved at most once in five minutes, nothing moved
    for the burst, and 30 s after the shift no link is over 95 %.
    """
    found = Steady(60 * settings.minutes)
    async with narrow_grid(folder) as grid, flowing(grid, DEMANDS) as flows:
        await asyncio.sleep(KNOWN_AFTER_S)
        noise = _Noise(settings.seed)
        async with steerer_of(grid, folder / "steerer") as steerer:
            begun_s, begun = time.monotonic(), time.time()
            await _Minutes(grid, steerer, flows, noise, found, tell).pass_by(begun_s)
            log = steerer.log_path.read_text()
    found.moves = list(moves_in(log, begun))
    return found


@dataclass(eq=False)
class _Minutes:
    """What is published, one spell after the other, and what becomes of it."""

    grid: RunningGrid
    steerer: SteererProcess
    flows: Flows
    noise: _Noise
    found: Steady
    tell: Tell

    async def pass_by(self, begun_s: float) -> None:
        found = self.found
        settling = self._publishing(SETTLING_S)
        await asyncio.sleep(SETTLING_S)
        steady = self._publishing(found.seconds)
        await asyncio.sleep(found.seconds)
        found.burst_s = time.monotonic() - begun_s
        await self._shift()
        watched = self._publishing(WATCHED_S)
        await asyncio.sleep(BURST_S)
        self.noise.times.clear()
        await asyncio.sleep(WATCHED_S - BURST_S)
        arrived = (await steady).values()
        found.lost, found.sent = sum(a.lost for a in arrived), sum(a.sent for a in arrived)
        lost = f"{found.lost} of {found.sent} lost"
        self.tell(f"{found.seconds:.0f} s of steady demand: {lost}")
        found.shift_s = time.monotonic() - begun_s
        found.asked = await self._shift()
        shifted = self._publishing(WATCHED_S + MEASURED_AFTER_S + 1.0)
        found.fullest_shifted = max((await rates_over(self.grid, MEASURED_S)).values()) / CAPACITY
        await asyncio.sleep(WATCHED_S - MEASURED_S)
        after = await rates_over(self.grid, MEASURED_AFTER_S)
        found.fullest_after = max(after.values()) / CAPACITY
        await asyncio.gather(settling, watched, shifted)

    def _publishing(self, seconds: float) -> asyncio.Task[Mapping[Demand, Arrived]]:
        """Seamless: the next begins when this one's publications end, not when all have come."""
        return asyncio.create_task(self.flows.spell(seconds, self.noise), name="publishing")

    async def _shift(self) -> float:
        trees = (await self.steerer.status())["trees"]
        self.noise.times = times = shift_of(ways_of(DEMANDS, trees))
        for demand, share in times.items():
            self.tell(f"{demand.topic}: {share:.2f} times as much")
        return OVERLOAD if times else 0.0


def shift_of(ways: Mapping[Demand, tuple[int, ...]]) -> dict[Demand, float]:
    """How many times as much flows carry after the shift; none: nothing lies over that link."""
    there = [demand for demand, way in ways.items() if JAMMED in way and demand != YIELDING]
    if not there:
        return {}
    grown = min(there, key=lambda demand: demand.rate)
    rest = sum(demand.rate for demand in there if demand != grown)
    return {grown: (OVERLOAD * CAPACITY / FRAMED - rest) / grown.rate, YIELDING: YIELDED}


def moves_in(log: str, begun: float) -> Iterator[Moved]:
    """The moves of which a steerer's log tells; ``begun`` by the wall clock."""
    for line in log.splitlines():
        if '"steer.moved"' in line:
            told = json.loads(line)
            at = datetime.fromisoformat(told["timestamp"]).timestamp()
            yield Moved(at - begun, f"{told['origin']}: {told['filters'][0]}")


command = experiment("steered-steady", Settings, run)

"""Demands drawn by chance, steered on real brokers, and the exact answer to what was measured.

Each demand fits, and fills a link beyond its capacity over shortest paths. Some time after a
steerer began, the ways of all flows are taken from its trees, and held against what the relays of
the links carried; their cost is held against ``plan solve --method exact`` on the instance that the
steerer wrote.
"""

import asyncio
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from federator.planner.flow import instance_file
from federator.planner.flow.instance import FloatArray
from federator.planner.flow.watch import UNWATCHED
from federator.planner.methods import SOLVERS, Method
from federator.planner.steering.fitting import Problem, Wish
from federator.planner.steering.network import Link, Network
from federator.protocol.types import BrokerId
from lab.frame.experiment import Judged, Tell, Verdict, experiment
from lab.frame.settings import setting
from lab.grid.running import RunningGrid
from lab.steered.narrow import (
    CAPACITY,
    FULLEST_MAX,
    GRID,
    KNOWN_AFTER_S,
    Way,
    narrow_grid,
    rates_over,
    steerer_of,
)
from lab.steered.traffic import Demand, flowing

FLOWS: Final = 7
RATES: Final = (250_000, 900_000)
"""bit/s of payload."""

FILL_DRAWN: Final = 0.88
"""So full may links be at most in some answer, with payloads alone: frames take more."""

SETTLED_AFTER_S: Final = 40.0
"""From the steerer's start, two moves and what they need to show."""

MEASURED_S: Final = 8.0
COST_TIMES_MAX: Final = 1.05
UNEXPLAINED_MAX: Final = 0.15
"""Of a link's capacity: what it carries beside the flows that go there."""

_BOTH_WAYS: Final = [ends for link in GRID.links for ends in ((link.a, link.b), (link.b, link.a))]
NETWORK: Final = Network({(a, b): Link(1.0, open=True) for a, b in _BOTH_WAYS})


@dataclass(frozen=True, slots=True)
class Steered:
    """What became of one demand.

    Attributes:
        fullest_ordinary: Of the links, if all flows went the shortest way.
        cost: Of the paths that flows take, and
        exact: what would be the least.
        fullest: Of the links, as the relays counted.
        unexplained: How much that differs from what the ways tell, of a capacity, at most.
    """

    seed: int
    fullest_ordinary: float
    cost: float
    exact: float
    fullest: float
    unexplained: float

    @property
    def held(self) -> bool:
        return (
            self.cost <= COST_TIMES_MAX * self.exact
            and self.fullest <= FULLEST_MAX
            and self.unexplained <= UNEXPLAINED_MAX
        )

    @property
    def text(self) -> str:
        return (
            f"demand {self.seed}: {self.fullest_ordinary:.0%} of a link by shortest paths;"
            f" steered {self.fullest:.0%}, paths cost {self.cost:g}, exact {self.exact:g}"
            f" ({self.cost / self.exact - 1:+.1%}); links carry what the ways tell"
            f" within {self.unexplained:.0%} of a capacity"
        )


def draw(seed: int) -> tuple[Demand, ...]:
    """A demand that fits, and does not fit over shortest paths."""
    rng = random.Random(seed)
    brokers = list(GRID.ids)
    while True:
        ends = [rng.sample(brokers, 2) for _ in range(FLOWS)]
        rates = [round(rng.uniform(*RATES), -4) for _ in range(FLOWS)]
        demands = tuple(Demand(a, b, rate) for (a, b), rate in zip(ends, rates, strict=True))
        if len({each.topic for each in demands}) == FLOWS and _full(demands) and _fits(demands):
            return demands


def _ordinary(demand: Demand) -> tuple[int, ...]:
    return NETWORK.way(demand.origin, (demand.destination,))


def _full(demands: Iterable[Demand]) -> bool:
    return fullest_of({demand: _ordinary(demand) for demand in demands}) > 1.05


def _fits(demands: tuple[Demand, ...]) -> bool:
    room = np.full(len(NETWORK.links), float(CAPACITY))
    wishes = tuple(
        Wish(each.origin, (each.destination,), each.rate, _ordinary(each)) for each in demands
    )
    instance = Problem(NETWORK, wishes, room, room).instance(FILL_DRAWN)
    return SOLVERS[Method.EXACT](instance, seed=0, watch=UNWATCHED).unmet == 0


def fullest_of(ways: Mapping[Demand, tuple[int, ...]]) -> float:
    """Of the links, by the payloads that go there."""
    return float(_carried(ways).max() / CAPACITY)


def _carried(ways: Mapping[Demand, tuple[int, ...]]) -> FloatArray:
    rates = np.zeros(len(NETWORK.links))
    for demand, way in ways.items():
        rates[list(way)] += demand.rate
    return rates


@dataclass(frozen=True, slots=True)
class Settings:
    """Which demands."""

    demands: int = setting(10, "How many, one after the other.", 1, 100)
    seed: int = setting(1, "Of the first; the others follow.")


@dataclass(frozen=True, slots=True)
class Outcome(Judged):
    """What became of all demands."""

    demands: list[Steered]

    def verdicts(self) -> Iterator[Verdict]:
        count, total = sum(each.held for each in self.demands), len(self.demands)
        worst = max(each.cost / each.exact for each in self.demands) - 1
        text = f"{count} of {total} demands: paths at most {worst:+.1%} over exact"
        wanted = f"wanted: all, within {COST_TIMES_MAX - 1:.0%}, no link over 95 %"
        yield Verdict(f"{text} ({wanted})", count == total)


async def run(settings: Settings, folder: Path, tell: Tell) -> Outcome:
    """Hold what a steerer makes of seeded demands against the exact answer, on six real brokers.

    Each demand fits, and overloads a link by shortest paths. 40 s after the steerer began, what
    the paths of all flows cost is held against `plan solve --method exact` on the instance that it
    measured. A minute each. Exits 0 when all are within 5 % of exact and no link is over 95 %.
    """
    found = []
    async with narrow_grid(folder) as grid:
        for seed in range(settings.seed, settings.seed + settings.demands):
            found.append(await _steer(grid, folder / f"demand-{seed}", seed))
            tell(found[-1].text)
    return Outcome(found)


async def _steer(grid: RunningGrid, folder: Path, seed: int) -> Steered:
    demands = draw(seed)
    written = folder / "instance.json"  # in the steerer's own folder
    async with flowing(grid, demands) as flows:
        await asyncio.sleep(KNOWN_AFTER_S)
        publishing = asyncio.create_task(flows.spell(3_600.0), name=f"demand {seed}")
        try:
            steerer = steerer_of(grid, folder, "--write-instance", str(written))
            async with steerer:
                await asyncio.sleep(SETTLED_AFTER_S)
                rates = await rates_over(grid, MEASURED_S)
                page = await steerer.status()
        finally:
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
    instance = instance_file.decode(await asyncio.to_thread(written.read_bytes))
    exact = SOLVERS[Method.EXACT](instance, seed=0, watch=UNWATCHED)
    ways = ways_of(demands, page["trees"])
    return Steered(
        seed,
        fullest_of({demand: _ordinary(demand) for demand in demands}),
        cost=float(sum(len(way) for way in ways.values())),
        exact=exact.cost,
        fullest=max(rates.values()) / CAPACITY,
        unexplained=_unexplained(ways, rates),
    )


def ways_of(
    demands: Iterable[Demand], trees: Iterable[Mapping[str, Any]]
) -> dict[Demand, tuple[int, ...]]:
    planned = {
        tree["filters"][0]: tuple(NETWORK.at[BrokerId(a), BrokerId(b)] for a, b in tree["edges"])
        for tree in trees
    }
    return {demand: planned.get(demand.topic, _ordinary(demand)) for demand in demands}


def _unexplained(ways: Mapping[Demand, tuple[int, ...]], rates: Mapping[Way, float]) -> float:
    told = _carried(ways)
    off = [abs(rates[ends] - float(told[at])) for at, ends in enumerate(NETWORK.links)]
    return max(off) / CAPACITY


command = experiment("steered-demands", Settings, run)

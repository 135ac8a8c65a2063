"""The sweeps behind Figures 8 to 22: points that can be computed anywhere, rows of one table.

A point is one value of one swept parameter and one seed; its rows belong to up to three figures.
Points know nothing of each other, so a laptop runs them in a loop and a cluster side by side.

Source: Fawwaz 2022, 5; docs/placement.md 3.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from lab.papers.figures import Row
from lab.papers.placement import delegation as delegation_paper
from lab.papers.placement import instances as placement_paper
from lab.papers.placement.exact import can_be_placed
from lab.papers.placement.hops import PlacementError
from lab.papers.placement.instance import Instance, Placement, checked, traffic_hops
from lab.papers.placement.policies import Account, compare
from lab.papers.placement.search import improved
from lab.papers.placement.simple import place_greedily, place_randomly

SWEEPS: Mapping[str, tuple[float, ...]] = {
    "locality": (0.05, 0.2, 0.4, 0.5, 0.6, 0.8, 0.95, 1.0),
    "subscribers": (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 3.9),
    "popularity": (0.1, 0.5, 1.0, 1.5, 2.0),
    "topics": (4.0, 8.0, 12.0, 16.0, 20.0),
    "utilisation": (0.05, 0.1, 0.2, 0.3, 0.4, 0.5),
    "services": (2.0, 4.0, 6.0, 9.0, 12.0, 15.0),
    "load": (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
}
"""Values of each swept parameter."""

FIGURES: Mapping[str, tuple[int, ...]] = {
    "locality": (8, 9, 10),
    "subscribers": (11, 12, 13),
    "popularity": (14, 15, 16),
    "topics": (17, 18),
    "utilisation": (19,),
    "services": (20,),
    "load": (21, 22),
}

FULL_LOAD = 0.7  # of the largest value in a sweep with fixed capacities
LOAD_UTILISATION = 0.1  # where load is swept: the paper leaves it out
SPREAD = 0.5
POWER_LOAD_MAX = 0.8  # Figure 22 ends there, Figure 21 goes on
SEARCH_ROUNDS = 60
RANDOM_TRIES = 5  # averaged, where a random placement is what others are compared to
FEASIBILITY_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Point:
    """One computation."""

    sweep: str  # the swept parameter
    x: float  # its value
    seed: int  # of everything random
    scale: float = 1.0  # of the paper's publishers and subscriptions; sizes, not probabilities


def points(*, delegation_seeds: int, placement_seeds: int, scale: float = 1.0) -> Iterator[Point]:
    for sweep, values in SWEEPS.items():
        seeds = delegation_seeds if FIGURES[sweep][0] < 17 else placement_seeds
        for x in values:
            for seed in range(seeds):
                yield Point(sweep, x, seed, scale)


def rows(point: Point) -> list[Row]:
    match point.sweep:
        case "locality" | "subscribers" | "popularity":
            return _delegation_rows(point)
        case "load":
            return _load_rows(point)
        case _:
            return _power_rows(point)


def _delegation_rows(point: Point) -> list[Row]:
    base = delegation_paper.Setting()
    setting = replace(
        base,
        publishers=round(base.publishers * point.scale),
        subscriptions=round(base.subscriptions * point.scale),
    )
    match point.sweep:
        case "locality":
            setting = replace(setting, locality=point.x)
        case "popularity":
            setting = replace(setting, popularity=point.x)
        case _:
            each = point.x * setting.publishers / setting.subscribers
            setting = replace(setting, subscriptions=round(each))
    accounts = compare(delegation_paper.draw(setting, seed=point.seed))
    return [
        Row(figure, policy.value, point.x, point.seed, value)
        for policy, account in accounts.items()
        for figure, value in zip(FIGURES[point.sweep], _measures(account), strict=True)
    ]


def _measures(account: Account) -> tuple[float, float, float]:
    return account.external, float(account.handled.mean()), float(account.table_bytes.mean())


def placement_setting(sweep: str, x: float) -> placement_paper.Setting:
    """The parameters of a point; capacities fixed so that the largest x loads them to 70 %."""
    base = placement_paper.Setting(spread=SPREAD)
    if sweep == "load":
        return replace(base, load=x, utilisation=LOAD_UTILISATION)

    def at(value: float) -> placement_paper.Setting:
        if sweep == "utilisation":
            return replace(base, utilisation=value)
        if sweep == "topics":
            return replace(base, topics=int(value))
        return replace(base, services=int(value))

    largest = at(max(SWEEPS[sweep]))
    chosen = at(x)
    return replace(chosen, load=FULL_LOAD * chosen.expected_work / largest.expected_work)


def placements(instance: Instance, seed: int) -> dict[str, list[Placement]]:
    """Placements by method; empty where one failed. ``optimal`` is our search, within its gap."""
    rng = np.random.default_rng([seed, 1])
    tries = [place_randomly(instance, rng) for _ in range(RANDOM_TRIES)]
    greedy = place_greedily(instance)
    state = improved(instance, rng, SEARCH_ROUNDS)
    try:
        optimal = [checked(instance, state.device_of, method="search")]
    except PlacementError:
        optimal = []
    return {
        "random": [found for found in tries if found is not None],
        "greedy": [greedy] if greedy is not None else [],
        "optimal": optimal,
    }


def _power_rows(point: Point) -> list[Row]:
    instance = placement_paper.draw(placement_setting(point.sweep, point.x), seed=point.seed)
    found = placements(instance, point.seed)
    if not all(found.values()):
        return []
    told: list[Row] = []
    power = {method: _mean([p.power for p in each]) for method, each in found.items()}
    for method, each in found.items():
        series = (method, point.x, point.seed)
        if point.sweep == "utilisation":
            told.append(Row(19, *series, 1 - power[method] / power["random"]))
            continue
        told.append(Row(FIGURES[point.sweep][0], *series, power[method]))
        if point.sweep == "topics":
            hops = _mean([traffic_hops(instance, p.device_of) for p in each])
            told.append(Row(18, *series, hops))
    return told


def _load_rows(point: Point) -> list[Row]:
    instance = placement_paper.draw(placement_setting("load", point.x), seed=point.seed)
    found = placements(instance, point.seed)
    failed = {
        "random": 1 - len(found["random"]) / RANDOM_TRIES,
        "greedy": float(not found["greedy"]),
        "optimal": float(
            not found["optimal"] and not can_be_placed(instance, time_limit_s=FEASIBILITY_LIMIT_S)
        ),
    }
    told = [Row(21, method, point.x, point.seed, share) for method, share in failed.items()]
    if point.x <= POWER_LOAD_MAX and all(found.values()):
        power = {method: _mean([p.power for p in each]) for method, each in found.items()}
        told += [
            Row(22, method, point.x, point.seed, 1 - drawn / power["random"])
            for method, drawn in power.items()
        ]
    return told


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)

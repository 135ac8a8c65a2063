"""Draws the story of routes that a seed means."""

import random
from dataclasses import replace

from federator.protocol.parameters import Parameters
from federator.protocol.types import BrokerId, Cost, Millis
from lab.sim import topologies
from lab.sim.faults import draw_faults
from lab.sim.manner import Manner
from lab.sim.plan import Link, LinkPlan, WorldPlan
from lab.sim.steering import draw_collected, draw_plans, with_edges
from lab.sim.story import Fault, FaultKind, Kind, PlanMoment, Publication, Resubscription, Story

FILTERS = (
    "a/b", "a/+", "a/#", "+/b", "a/b/c", "a/+/c", "x", "x/#", "+", "s/1/t", "s/2/t", "s/+/t",
    "s/#", "home/door", "home/+", "home/#", "plant/1/temp", "plant/+/temp", "plant/#", "+/+/temp",
)  # fmt: skip
TOPICS = (
    "a/b", "a/c", "a/b/c", "a/x/c", "x", "x/y", "q/b", "s/1/t", "s/2/t", "s/3/u", "home/door",
    "home/roof/hatch", "plant/1/temp", "plant/2/temp", "plant/2/hum", "nobody/asks",
)  # fmt: skip
"""Overlapping on purpose: most topics match several filters."""

NODES = 25
SETTLE_MS = 1_000  # quiet time before the first fault

FAULTY_MS = 6_000
LONG_FAULTY_MS = 40_000  # now and then: longer than any keep-alive and any lifetime


def draw(seed: int, how: Manner) -> Story:
    """The story of ``seed``."""
    nodes = how.nodes or NODES
    rng = random.Random(f"scenario {seed} {nodes} {how.topology}")
    name, raw_links = topologies.draw(how.topology, nodes, rng)
    ids = [BrokerId(id) for id in range(nodes)]
    rng.shuffle(ids)
    links: list[Link] = [(ids[a], ids[b]) for a, b in raw_links]
    long = rng.random() < 0.03
    heal_ms = SETTLE_MS + (LONG_FAULTY_MS if long else FAULTY_MS)
    plan = _draw_plan(rng, ids, links)
    plan = how.applied_to(plan, seed=seed, from_ms=0, until_ms=heal_ms)
    faults: tuple[Fault, ...] = ()
    if how.faulty:
        faults = draw_faults(
            rng,
            ids=sorted(ids),
            links=links,
            count=rng.randint(1, 4 + nodes // 5),
            start_ms=SETTLE_MS if rng.random() < 0.8 else 0,
            end_ms=heal_ms,
        )
    if how.faulty and long:
        sleeper = rng.choice(plan.ids)
        until_ms = heal_ms - rng.randint(0, 10_000)
        faults += (Fault(FaultKind.AGENT_PAUSE, SETTLE_MS, until_ms, node=sleeper),)
    plans: tuple[PlanMoment, ...] = ()
    if how.steered:
        dice = random.Random(f"plans {seed}")
        plans = draw_plans(dice, plan, TOPICS, start_ms=SETTLE_MS, end_ms=heal_ms)
        if how.edges:
            hubs = dice.sample(sorted(ids), min(2, len(ids)))
            wants = {hub: plan.filters[hub] | draw_collected(dice) for hub in hubs}
            plan = replace(plan, hubs=frozenset(hubs), filters={**plan.filters, **wants})
            plans = with_edges(dice, plans, hubs, pool_of(plan))
    return Story(
        kind=Kind.ROUTES,
        seed=seed,
        plans=plans,
        topology=name,
        plan=plan,
        faults=faults,
        changes=_draw_changes(rng, plan, heal_ms),
        publications=_draw_publications(rng, ids, heal_ms),
        heal_ms=heal_ms,
        stays=rng.random() < 0.02,
    )


def pool_of(plan: WorldPlan) -> list[str]:
    """All filters that clients want at first."""
    return sorted({f for filters in plan.filters.values() for f in filters})


def _draw_plan(rng: random.Random, ids: list[BrokerId], links: list[Link]) -> WorldPlan:
    slowest_ms = rng.choice((1, 5, 20, 100))
    costly = rng.random() < 0.2
    pool = rng.sample(FILTERS, rng.choice((1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 5, 5, 8, 20)))
    density = rng.choice((0.1, 0.25, 0.5, 1.0))
    rough = rng.random()
    return WorldPlan(
        ids=tuple(sorted(ids)),
        links=tuple(draw_link(rng, link, slowest_ms, costly=costly, odd=True) for link in links),
        filters={id: _draw_filters(rng, pool, density) for id in sorted(ids)},
        priorities={id: rng.choice((-1, 0, 0, 1)) for id in sorted(ids)}
        if rng.random() < 0.2
        else {},
        parameters=Parameters(
            redundancy=rng.randint(1, 3),
            solicit_timeout_ms=Millis(max(500, 4 * slowest_ms * min(len(ids), 10))),
        ),
        reconnect_ms_max=rng.choice((500, 1_000, 1_000, 2_000, 5_000)),
        start_ms_max=rng.choice((0, 200, 2_000)),
        clock_offset_ms_max=rng.choice((0, 1_000_000)),
        loss=rng.choice((0.01, 0.05, 0.3)) if rough < 0.3 else 0.0,
        duplication=rng.choice((0.01, 0.1, 0.5)) if 0.2 < rough < 0.45 else 0.0,
    )


def draw_link(
    rng: random.Random, ends: Link, slowest_ms: int, *, costly: bool = False, odd: bool = False
) -> LinkPlan:
    """A link; ``odd`` ones may be named by another address, or without the other's id."""
    fastest_ms = rng.randint(0, slowest_ms)
    return LinkPlan(
        *ends,
        cost=Cost(rng.randint(1, 5) if costly else 1),
        configured=ends if rng.random() < 0.7 else (rng.choice(ends),),
        aliases=(rng.choice(ends),) if odd and rng.random() < 0.1 else (),
        ids_known=not odd or rng.random() < 0.7,
        delay_ms_min=fastest_ms,
        delay_ms_max=rng.randint(fastest_ms, slowest_ms),
    )


def _draw_filters(rng: random.Random, pool: list[str], density: float) -> frozenset[str]:
    return frozenset(filter for filter in pool if rng.random() < density)


def _draw_changes(rng: random.Random, plan: WorldPlan, end_ms: int) -> tuple[Resubscription, ...]:
    pool = sorted({filter for filters in plan.filters.values() for filter in filters})
    density = rng.choice((0.0, 0.1, 0.3))
    changes = [
        Resubscription(
            at_ms=rng.randint(0, end_ms),
            client=rng.choice(plan.ids),
            filters=tuple((filter, 0) for filter in sorted(_draw_filters(rng, pool, density))),
        )
        for _ in range(rng.choice((0, 0, 1, 3, 10)))
    ]
    return tuple(sorted(changes, key=lambda change: change.at_ms))


def _draw_publications(
    rng: random.Random, ids: list[BrokerId], end_ms: int
) -> tuple[Publication, ...]:
    return tuple(
        Publication(
            at_ms=rng.randint(0, end_ms),
            node=rng.choice(ids),
            topic=rng.choice(TOPICS),
            count=rng.choice((1, 1, 1, 3)),
        )
        for _ in range(rng.choice((10, 10, 40)))
    )

"""A steerer that knows nothing: trees and edges drawn by chance, told to some agents only.

What a tree is good for is the planner's business. Here it only has to be a tree of links that were
once there, for a flow that may exist, and every mixture of agents that follow it, followed another
one a moment ago, or never heard of it must carry each publication once to everybody. Where it has
topics kept at the edge, only who collects them may miss any, and only those that nobody else at
another broker wants.
"""

import random
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from federator.protocol.filters import matches
from federator.protocol.messages.steering import STEERING_VERSION, Plan, Tree, passes, tree_of
from federator.protocol.types import BrokerId
from lab.sim.data import FEDERATION
from lab.sim.plan import Link, WorldPlan, link_of
from lab.sim.story import PlanMoment
from lab.sim.topics import topic_matches
from lab.sim.world import World

VALID_MS = (200, 2_000, 20_000, 200_000)
MIXTURES = 5
"""Plans that are told in the calm, first to one half of the agents, then to the other."""

STEERERS = ("s1", "s1", "s1", "s2")
EDGES_SHARE = 0.7
COLLECTED = ("+/b", "a/#", "s/#", "home/#", "plant/#", "x/#")
SHARES = (0.0, 0.3, 0.8, 0.8, 1.0)
"""Of the flows that have a tree."""


def draw_plans(
    rng: random.Random, plan: WorldPlan, topics: Sequence[str], *, start_ms: int, end_ms: int
) -> tuple[PlanMoment, ...]:
    """Some plans between these times, and ``MIXTURES`` after the last one."""
    times = sorted(rng.randint(start_ms, end_ms) for _ in range(rng.randint(1, 12)))
    times += [end_ms + 1] * MIXTURES
    links = [(link.a, link.b) for link in plan.links]
    links += [link_of(*rng.sample(plan.ids, 2)) for _ in range(rng.choice((0, 0, 2)))]  # no more
    flows = sorted(flows_of(plan, topics))
    moments = []
    for number, at_ms in enumerate(times):
        share = rng.choice(SHARES)
        trees = [
            tree
            for flow in flows
            if rng.random() < share and (tree := _draw_tree(rng, *flow, links))
        ]
        told = [id for id in plan.ids if rng.random() < 0.9]
        moments.append(
            PlanMoment(
                at_ms,
                rng.choice(STEERERS),
                number,
                rng.choice(VALID_MS),
                tuple(told),
                tuple(trees),
            )
        )
    return tuple(moments)


def draw_collected(rng: random.Random) -> frozenset[str]:
    """What clients of a hub want to collect."""
    return frozenset(rng.sample(COLLECTED, rng.randint(1, 3)))


def with_edges(
    rng: random.Random,
    plans: Iterable[PlanMoment],
    hubs: Sequence[BrokerId],
    filters: Sequence[str],
) -> tuple[PlanMoment, ...]:
    """``plans`` that mostly say as well what one of ``hubs`` collects and the others keep."""
    moments = []
    for moment in plans:
        some = tuple(f for f in filters if f in COLLECTED or rng.random() < 0.3)
        policy = rng.choice(("ns", "ns", "lp"))
        edge = replace(moment, hub=rng.choice(hubs), collects=some, policy=policy)
        moments.append(edge if rng.random() < EDGES_SHARE else moment)
    return tuple(moments)


def marked(world: World) -> dict[BrokerId, frozenset[str]]:
    """What each agent says that it only collects, or said until just now, where that can count."""
    plan = world.plan
    per_hop_ms = plan.delay_ms_max + plan.parameters.improvement_hold_ms
    crossing_ms = len(plan.ids) * per_hop_ms + 2 * plan.parameters.core_ann_gap_ms
    since_ms = world.now_ms - crossing_ms
    paths = ((id, world.data_paths[id]) for id in world.agents if id in plan.shortest)
    return {id: path.collected(since_ms=since_ms) for id, path in paths}


def only_collected(
    topic: str,
    origin: BrokerId,
    wanted: Mapping[str, Iterable[BrokerId]],
    collects: Mapping[BrokerId, Set[str]],
) -> bool:
    """Whether all who want ``topic`` elsewhere only collect: what they want is in ``collects``.

    ``wanted``: which brokers want each filter.
    """
    return all(
        filter in collects.get(id, ())
        for filter, ids in wanted.items()
        if topic_matches(filter, topic)
        for id in ids
        if id != origin
    )


def schedule_plans(world: World, plans: Iterable[PlanMoment], *, until_ms: int) -> None:
    """Put those of ``plans`` that are told by then on the world's agenda."""
    for moment in plans:
        if moment.at_ms <= until_ms:
            world.agenda.at(moment.at_ms, tell_plan, world, moment)


def halves(moment: PlanMoment) -> tuple[PlanMoment, PlanMoment]:
    return replace(moment, to=moment.to[::2]), replace(moment, to=moment.to[1::2])


def tell_plan(world: World, moment: PlanMoment) -> None:
    for id in moment.to:
        agent = world.agents.get(id)
        if agent is None:
            continue
        trees = tuple(tree for tree in moment.trees if passes(tree, id))
        plan = Plan(
            STEERING_VERSION,
            FEDERATION,
            id,
            moment.steerer,
            since_ms=int(moment.steerer == "s2"),
            number=moment.number,
            made_ms=world.now_of(agent).us // 1_000,
            valid_ms=moment.valid_ms,
            trees=trees,
            keep="" if id == moment.hub else moment.policy,
            collects=moment.collects if id == moment.hub else (),
        )
        world.fired["plan"] += 1
        world.run(agent, world.data_paths[id].on_plan, plan)


def flows_of(plan: WorldPlan, topics: Sequence[str]) -> Iterable[tuple[BrokerId, tuple[str, ...]]]:
    """What clients publish that others want at first, by where, and which filters match it."""
    found = set()
    for origin in plan.ids:
        others = {f for id, filters in plan.filters.items() if id != origin for f in filters}
        for topic in topics:
            if filters := tuple(sorted(f for f in others if matches(f, topic))):
                found.add((origin, filters))
    return found


def _draw_tree(
    rng: random.Random, origin: BrokerId, filters: tuple[str, ...], links: Sequence[Link]
) -> Tree | None:
    """A tree of some broker to some of the others."""
    parents: dict[BrokerId, BrokerId] = {}
    size = rng.randint(1, len(links) + 1)
    while len(parents) < size:
        inside = {origin, *parents}
        ways = [
            (one, other)
            for a, b in links
            for one, other in ((a, b), (b, a))
            if one in inside and other not in inside
        ]
        if not ways:
            break
        parent, child = rng.choice(ways)
        parents[child] = parent
    return tree_of(origin, filters, parents) if parents else None

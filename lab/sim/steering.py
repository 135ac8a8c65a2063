"""A steerer that knows nothing: trees drawn by chance, told to some agents and not to others.

What a tree is good for is the planner's business. Here it only has to be a tree of links that were
once there, for a flow that may exist, and every mixture of agents that follow it, followed another
one a moment ago, or never heard of it must carry each publication once to everybody.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from federator.protocol.filters import matches
from federator.protocol.messages.steering import STEERING_VERSION, Plan, Tree, passes, tree_of
from federator.protocol.types import BrokerId
from lab.sim.data import FEDERATION
from lab.sim.plan import Link, WorldPlan, link_of
from lab.sim.world import World

VALID_MS = (200, 2_000, 20_000, 200_000)
MIXTURES = 5
"""Plans that are told in the calm, first to one half of the agents, then to the other."""

STEERERS = ("s1", "s1", "s1", "s2")
SHARES = (0.0, 0.3, 0.8, 0.8, 1.0)
"""Of the flows that have a tree."""


@dataclass(frozen=True, slots=True)
class PlanMoment:
    """At ``at_ms`` a steerer tells ``to`` its plan number ``number``."""

    at_ms: int
    steerer: str
    number: int
    valid_ms: int
    to: tuple[BrokerId, ...]
    trees: tuple[Tree, ...]


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


def schedule_plans(world: World, plans: Iterable[PlanMoment], *, until_ms: int) -> None:
    """Put those of ``plans`` that are told by then on the world's agenda."""
    for moment in plans:
        if moment.at_ms <= until_ms:
            world.agenda.at(moment.at_ms, tell_plan, world, moment)


def halves(moment: PlanMoment) -> tuple[PlanMoment, PlanMoment]:
    """Every second agent, and the others."""
    return replace(moment, to=moment.to[::2]), replace(moment, to=moment.to[1::2])


def tell_plan(world: World, moment: PlanMoment) -> None:
    """Tell it whoever lives."""
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

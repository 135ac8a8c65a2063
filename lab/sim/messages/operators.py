"""Operators who change what they say of links while everything runs, and change it back.

Drawn beside the story, so that the same seed tells the same story without them.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from federator.protocol.types import BrokerId, Cost
from lab.sim.plan import LinkPlan
from lab.sim.world import World

COSTS = (1, 2, 5, 20)


@dataclass(frozen=True, slots=True)
class Reload:
    """From ``at_ms`` to ``until_ms`` the operator of ``node`` has another word for a link.

    ``cost``: what the link to ``target`` costs; ``None``: ``target`` is not named.
    """

    at_ms: int
    until_ms: int
    node: BrokerId
    target: BrokerId
    cost: Cost | None


def draw_reloads(
    seed: int, links: Sequence[LinkPlan], *, count: int, start_ms: int, end_ms: int
) -> tuple[Reload, ...]:
    """``count`` changes between ``start_ms`` and ``end_ms``, by when all are undone."""
    rng = random.Random(f"operators {seed}")
    reloads = []
    for link in (rng.choice(links) for _ in range(count if links else 0)):
        node, target = rng.sample((link.a, link.b), 2)
        at_ms = rng.randint(start_ms, end_ms - 1)
        until_ms = rng.randint(at_ms, end_ms)
        cost = Cost(rng.choice(COSTS)) if rng.random() < 0.5 else None
        reloads.append(Reload(at_ms, until_ms, node, target, cost))
    return tuple(sorted(reloads, key=lambda each: each.at_ms))


def schedule_reloads(world: World, reloads: Sequence[Reload]) -> None:
    """Put ``reloads`` on the world's agenda."""
    for each in reloads:
        world.agenda.at(each.at_ms, _say, world, each)
        world.agenda.at(each.until_ms, _take_back, world, each, world.named_by(each.node))


def _say(world: World, reload: Reload) -> None:
    world.fired["reload cost" if reload.cost is not None else "reload unnamed"] += 1
    said = []
    for address, target, link in world.named_by(reload.node):
        if target != reload.target:
            said.append((address, target, link))
        elif reload.cost is not None:
            said.append((address, target, replace(link, cost=reload.cost)))
    world.configure(reload.node, said)


def _take_back(
    world: World, reload: Reload, meant: Sequence[tuple[str, BrokerId, LinkPlan]]
) -> None:
    """Say of one neighbour again what was ``meant`` from the beginning."""
    others = [each for each in world.named_by(reload.node) if each[1] != reload.target]
    world.configure(reload.node, others + [each for each in meant if each[1] == reload.target])

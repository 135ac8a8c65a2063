"""Operators who change what they say of links while everything runs, and change it back.

Drawn beside the story, so that the same seed tells the same story without them.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from federator.protocol.types import BrokerId, Cost
from lab.sim.plan import LinkPlan
from lab.sim.story import Reload, Story
from lab.sim.world import World

COSTS = (1, 2, 5, 20)


def with_reloads(story: Story, count: int) -> Story:
    """``story`` with so many changes after it settled, all undone by when it heals."""
    rng, links = random.Random(f"operators {story.seed}"), story.plan.links
    start_ms, end_ms = story.settle_ms, story.heal_ms
    reloads = []
    for link in (rng.choice(links) for _ in range(count if links else 0)):
        node, target = rng.sample((link.a, link.b), 2)
        at_ms = rng.randint(start_ms, end_ms - 1)
        until_ms = rng.randint(at_ms, end_ms)
        cost = Cost(rng.choice(COSTS)) if rng.random() < 0.5 else None
        reloads.append(Reload(at_ms, until_ms, node, target, cost))
    return replace(story, reloads=tuple(sorted(reloads, key=lambda each: each.at_ms)))


def schedule_reloads(world: World, reloads: Sequence[Reload]) -> None:
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

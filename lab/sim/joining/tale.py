"""Tells a story of joining, and looks whether the graph is as promised.

Whenever nothing happened for a while, the graph must be whole and survive any single death, have
short ways, everybody about as many links as wanted, and change no more than exchanges for nearer
neighbours take. When somebody dies then, nobody else is cut off, not even for a moment.
"""

import math
from collections.abc import Iterator
from functools import partial

from federator.protocol.topology.graph import parts_of, strength_of, without
from federator.protocol.types import BrokerId
from lab.sim.joining.part import Joining
from lab.sim.story import Story
from lab.sim.tale import Tale, demand, stand
from lab.sim.world import World

SETTLED_MS = 150_000  # what settling may take, whatever befell the federation

CALM_MS = 20_000  # settled is what all is well with for so long

LATELY_MS = 10_000
CHANGES_MIN, CHANGES_PER_BROKER_MAX = 8, 0.33
"""Ends of links that came or went lately, for all and for each broker: an exchange makes eight."""

CHECK_EVERY_MS = 2_000


def tale_of(story: Story) -> Tale:
    world = World(story.plan, seed=story.seed, parts=(Joining,))
    return Tale(world, SETTLED_MS, _acts(world.part(Joining), story))


def _acts(joining: Joining, story: Story) -> Iterator[int]:
    """One act after the other; the longest that settling took."""
    world, slowest_ms = joining.world, 0
    for act in story.acts:
        began_ms = world.now_ms
        for blow in act:
            world.run_until(began_ms + blow.at_ms)
            if blow.start is not None:
                joining.start(blow.start, blow.seeds)
            elif blow.death is not None:
                _kill(joining, blow.death)
            else:
                joining.split(blow.apart)
        slowest_ms = max(slowest_ms, _settle(joining))
    yield slowest_ms


def _kill(joining: Joining, broker: BrokerId) -> None:
    """Who dies in a settled federation cuts off nobody, not for a moment."""
    left = parts_of(without(joining.graph(), {broker}))
    joining.kill(broker)
    if len(left) > 1:
        demand("survives_a_death", [f"without {broker} there are {len(left)} parts"])


def _settle(joining: Joining) -> int:
    """Run until all is well, and stays so; how long it took to become so."""
    world, began_ms = joining.world, joining.world.now_ms
    world.run_until(began_ms + CHECK_EVERY_MS)
    well_ms = stand(
        world,
        {"settles": partial(complaints, joining)},
        until_ms=world.now_ms + SETTLED_MS,
        every_ms=CHECK_EVERY_MS,
        calm_ms=CALM_MS - CHECK_EVERY_MS,
    )
    return well_ms - CHECK_EVERY_MS - began_ms


def complaints(joining: Joining) -> Iterator[str]:
    strength = strength_of(joining.graph())
    brokers, wanted = strength.brokers, joining.neighbours
    if len(strength.parts) != 1:
        yield f"{len(strength.parts)} parts of {brokers} brokers"
        return
    if brokers >= 3 and not strength.survives_any_death:
        yield f"the death of any of {strength.weak.brokers} would part the rest"
    least = min(wanted, brokers - 1) - 1
    if strength.degree_min < least:
        yield f"somebody has {strength.degree_min} links, {least} wanted"
    if strength.degree_max > wanted + 1:
        yield f"somebody has {strength.degree_max} links, at most {wanted + 1} wanted"
    changes = sum(at_ms > joining.world.now_ms - LATELY_MS for at_ms in joining.changes[-10_000:])
    if changes > max(CHANGES_MIN, CHANGES_PER_BROKER_MAX * brokers):
        yield f"{changes} changes of links in {LATELY_MS} ms"
    most = max(1.0, 2 * math.log2(brokers))
    assert strength.diameter is not None, "it is whole, and small enough"
    if strength.diameter > most:
        yield f"a diameter of {strength.diameter}, at most {most:.1f} wanted"

"""Draws what befalls brokers that join by one: how they come, which die, which are cut off."""

import random
from dataclasses import replace

from federator.protocol.topology.parameters import TopologyParameters
from federator.protocol.types import BrokerId
from lab.sim.joining.part import plan_of
from lab.sim.manner import Manner
from lab.sim.story import Blow, Kind, Story

NODES_MIN, NODES_MAX = 3, 40
ACTS_MAX = 3


def draw(seed: int, how: Manner) -> Story:
    """The story of ``seed``."""
    rng = random.Random(f"joining story {seed} {how.nodes}")
    nodes = how.nodes or rng.randint(NODES_MIN, NODES_MAX)
    neighbours = how.neighbours or rng.choice((4, 5, 6, 6, 6, 7, 8))
    ids = [BrokerId(id) for id in rng.sample(range(10 * nodes), nodes)]
    span_ms = rng.choice((0, 100 * nodes, 500 * nodes, 1_000 * nodes))
    by_first = rng.random() < 0.7
    starts: list[Blow] = []
    for number, id in enumerate(ids):
        seed_id = ids[0] if by_first or number < 2 else rng.choice(ids[:number])
        at_ms = int(rng.random() * span_ms) if number else 0
        starts.append(Blow(at_ms, id, (seed_id,) if number else ()))
    acts = [starts, *(_draw_acts(rng, ids) if how.faulty else ())]
    everyone = sorted({blow.start for act in acts for blow in act if blow.start is not None})
    arranging = TopologyParameters(neighbours=neighbours)
    return Story(
        kind=Kind.JOINING,
        seed=seed,
        topology="joining",
        plan=replace(plan_of(everyone, seed), arranging=arranging),
        acts=tuple(tuple(sorted(act, key=lambda blow: blow.at_ms)) for act in acts),
    )


def _draw_acts(rng: random.Random, ids: list[BrokerId]) -> list[list[Blow]]:
    alive, dead, newcomers = list(ids), list[BrokerId](), 10 * len(ids)
    acts: list[list[Blow]] = []
    for _ in range(rng.randint(1, ACTS_MAX)):
        act: list[Blow] = []
        kind = rng.choice(("death", "restart", "newcomers", "split", "return"))
        if kind == "newcomers":
            for _ in range(rng.randint(1, 3)):
                newcomers += 1
                act.append(Blow(0, BrokerId(newcomers), (rng.choice(alive),)))
            alive += [blow.start for blow in act if blow.start is not None]
        elif kind == "split":
            apart = frozenset(rng.sample(alive, rng.randint(1, len(alive) // 2)))
            heal_ms = rng.choice((2_000, 20_000, 60_000))
            act += [Blow(0, apart=apart), Blow(heal_ms)]
        elif kind == "return" and dead:
            alive.append(dead.pop())
            act.append(Blow(0, alive[-1]))
        elif len(alive) > NODES_MIN:
            id = alive.pop(rng.randrange(len(alive)))
            act.append(Blow(0, death=id))
            if kind == "restart":
                act.append(Blow(rng.choice((1_000, 10_000, 60_000)), id))
                alive.append(id)
            else:
                dead.append(id)
        acts.append(act)
    return acts

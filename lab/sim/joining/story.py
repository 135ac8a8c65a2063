"""What befalls brokers that join by one: in which order they come, who dies, who is split off.

Everything is drawn here, before the first event.
"""

import random
from dataclasses import dataclass

from federator.protocol.topology.parameters import TopologyParameters
from federator.protocol.types import BrokerId


@dataclass(frozen=True, slots=True)
class Start:
    """``broker`` starts and joins by ``seeds``."""

    at_ms: int
    broker: BrokerId
    seeds: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class Death:
    """``broker`` and its agent die at once."""

    at_ms: int
    broker: BrokerId


@dataclass(frozen=True, slots=True)
class Split:
    """``apart`` and the others are cut from each other; nobody: they reach each other again."""

    at_ms: int
    apart: frozenset[BrokerId]


Blow = Start | Death | Split


@dataclass(frozen=True, slots=True)
class JoiningStory:
    """What a seed means."""

    seed: int
    nodes: int
    parameters: TopologyParameters
    # Each begins when the federation has settled after the one before; what happens in it, in order
    # of time since it began.
    acts: tuple[tuple[Blow, ...], ...]


NODES_MIN, NODES_MAX = 3, 40
ACTS_MAX = 3


def draw(
    seed: int, *, nodes: int | None = None, faulty: bool = True, neighbours: int | None = None
) -> JoiningStory:
    """The story of ``seed``, with ``nodes`` brokers at first that want so many neighbours."""
    rng = random.Random(f"joining story {seed} {nodes}")
    nodes = rng.randint(NODES_MIN, NODES_MAX) if nodes is None else nodes
    neighbours = rng.choice((4, 5, 6, 6, 6, 7, 8)) if neighbours is None else neighbours
    ids = [BrokerId(id) for id in rng.sample(range(10 * nodes), nodes)]
    span_ms = rng.choice((0, 100 * nodes, 500 * nodes, 1_000 * nodes))
    by_first = rng.random() < 0.7
    starts: list[Blow] = []
    for number, id in enumerate(ids):
        seed_id = ids[0] if by_first or number < 2 else rng.choice(ids[:number])
        at_ms = int(rng.random() * span_ms) if number else 0
        starts.append(Start(at_ms, id, (seed_id,) if number else ()))
    acts = [starts, *(_draw_acts(rng, ids) if faulty else ())]
    return JoiningStory(
        seed=seed,
        nodes=nodes,
        parameters=TopologyParameters(neighbours=neighbours),
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
                act.append(Start(0, BrokerId(newcomers), (rng.choice(alive),)))
            alive += [blow.broker for blow in act if isinstance(blow, Start)]
        elif kind == "split":
            apart = frozenset(rng.sample(alive, rng.randint(1, len(alive) // 2)))
            heal_ms = rng.choice((2_000, 20_000, 60_000))
            act += [Split(0, apart), Split(heal_ms, frozenset())]
        elif kind == "return" and dead:
            alive.append(dead.pop())
            act.append(Start(0, alive[-1], ()))
        elif len(alive) > NODES_MIN:
            id = alive.pop(rng.randrange(len(alive)))
            act.append(Death(0, id))
            if kind == "restart":
                act.append(Start(rng.choice((1_000, 10_000, 60_000)), id, ()))
                alive.append(id)
            else:
                dead.append(id)
        acts.append(act)
    return acts

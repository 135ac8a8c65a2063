"""Our own placement: build, improve, tear a piece out, build it again, keep what is better.

Building takes containers by falling workload to where they draw least, flows to what is already
placed included. Improving shifts one container or swaps two while that saves anything. What is
torn out is a container, those it has flows with and some that share their devices: the piece in
which interdependence can hide a better arrangement. Capacities are soft until the end.

Its bound is Lagrange's (``placement_bound``), so it says itself how far from the best it can be.

Source: ruin and recreate, Schrimpf et al. 2000; docs/placement.md, section 2.
"""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from federator.planner.placement import Instance, Placement, PlacementError, checked
from federator.planner.placement_bound import lower_bound
from federator.planner.placement_state import State

LOOKS_MAX = 200
"""At each container on average, while improving once."""

RUINED_MAX = 24
BOLDNESS = (0.05, 0.5, 3.0)
"""How much dearer than it is a device may look while building again; one of these each time."""

ROUNDS_MAX = 1_000
WORK_UNITS = 400_000_000
"""Rounds times containers times devices that a search spends by default."""

SPLIT_UNITS = 6e9
"""Pairs times squared devices that a bound spends on splits by default."""


def search(
    instance: Instance,
    *,
    seed: int,
    rounds: int | None = None,
    price_steps: int = 60,
    split_passes: int | None = None,
) -> Placement | None:
    """A placement with a proven bound; ``None``: none was found, which proves nothing.

    Args:
        instance: What to place.
        seed: Of what is torn out.
        rounds: Times to tear out and rebuild; by default as many as ``WORK_UNITS`` allow.
        price_steps: See ``lower_bound``.
        split_passes: See ``lower_bound``; by default as many as ``SPLIT_UNITS`` allow, to 100.
    """
    if not instance.containers:
        return checked(instance, np.zeros(0, dtype=np.intp), method="search")
    rng = np.random.default_rng(seed)
    if rounds is None:
        rounds = min(ROUNDS_MAX, WORK_UNITS // (instance.containers * instance.devices))
    best = improved(instance, rng, rounds)
    try:
        found = checked(instance, best.device_of, method="search")
    except PlacementError:
        return None
    if split_passes is None:
        effort = max(1, len(instance.pairs)) * instance.devices**2
        split_passes = int(min(100, SPLIT_UNITS // effort))
    bound = lower_bound(
        instance, price_steps=price_steps, split_passes=split_passes, target=found.power
    )
    return checked(instance, found.device_of, method="search", lower_bound=bound)


def improved(instance: Instance, rng: np.random.Generator, rounds: int) -> State:
    """The best state met. It may overload devices where nothing better was met."""
    starts = [_built(instance, rule) for rule in (_cheapest, _fullest, _emptiest)]
    for start in starts:
        _improve(start, rng)
    best = min(starts, key=_cost)
    best_cost = _cost(best)
    state = State(instance)
    state.copy_from(best)
    for _ in range(rounds):
        _improve(state, rng, _rebuild(state, rng))
        cost = _cost(state)
        if cost < best_cost - 1e-9:
            best.copy_from(state)
            best_cost = cost
        else:
            state.copy_from(best)
    return best


Rule = Callable[[State, int], int]
"""Where to put a container that is nowhere."""


def _cheapest(state: State, c: int) -> int:
    return int(state.cost_of_putting(c).argmin())


def _fullest(state: State, c: int) -> int:
    """Best fit: packs tight, for when capacities are."""
    left = state.instance.capacity - state.load - state.instance.work[c]
    return int(np.where(left >= 0, left, left.max() - left + 1.0).argmin())


def _emptiest(state: State, c: int) -> int:
    return int((state.instance.capacity - state.load).argmax())


def _built(instance: Instance, rule: Rule) -> State:
    state = State(instance)
    for c in np.argsort(-instance.work, kind="stable").tolist():
        state.put(c, rule(state, c))
    return state


def _cost(state: State) -> float:
    """Power and the price of overload; each pair counted once."""
    everyone = np.arange(len(state.device_of))
    paid = float(state.pays[everyone, state.device_of].sum())
    alone = float(state.instance.alone[everyone, state.device_of].sum())
    return (paid + alone) / 2 + state.price * state.overload


def _improve(state: State, rng: np.random.Generator, piece: Sequence[int] | None = None) -> None:
    """Move containers of ``piece`` (all by default), and those that this concerns."""
    containers = len(state.device_of)
    todo = deque(rng.permutation(containers if piece is None else np.array(piece)).tolist())
    waiting = set(todo)
    for _ in range(LOOKS_MAX * containers):
        if not todo:
            return
        c = todo.popleft()
        waiting.discard(c)
        for moved in state.improve(c):
            for concerned in (moved, *state.partners(moved).tolist()):
                if concerned not in waiting:
                    waiting.add(concerned)
                    todo.append(concerned)


def _rebuild(state: State, rng: np.random.Generator) -> list[int]:
    """Tear a piece out and put it back, each container where it draws least; return it."""
    containers = len(state.device_of)
    size = min(containers, int(rng.integers(2, RUINED_MAX + 1)))
    first = int(rng.integers(containers))
    partners = rng.permutation(state.partners(first))[: size // 2]
    devices = state.device_of[[first, *partners]]
    beside = rng.permutation(np.flatnonzero(np.isin(state.device_of, devices)))
    anyone = rng.permutation(containers)[:RUINED_MAX]
    near = dict.fromkeys([first, *partners.tolist(), *beside.tolist()])
    piece = list(dict.fromkeys([*near, *anyone.tolist()]))[:size]
    for c in piece:
        state.lift(c)
    boldness = rng.choice(BOLDNESS)
    for c in rng.permutation(piece).tolist():
        noise = 1.0 + boldness * rng.random(state.instance.devices)
        state.put(c, int((state.cost_of_putting(c) * noise).argmin()))
    return piece

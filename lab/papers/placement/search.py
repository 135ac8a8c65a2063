"""Our own placement: build, improve, tear a piece out, build it again, keep what is better.

Building takes containers by falling workload to where they draw least, flows to what is already
placed included. Improving shifts one container or swaps two while that saves anything. What is
torn out is a container, those it has flows with and some that share their devices: the piece in
which interdependence can hide a better arrangement. Capacities are soft until the end.

Its bound is Lagrange's (``bound``), so it says itself how far from the best it can be.

Source: ruin and recreate, Schrimpf et al. 2000; docs/placement.md 2.
"""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from lab.papers.placement.bound import lower_bound
from lab.papers.placement.hops import Ints, Matrix, PlacementError
from lab.papers.placement.instance import Instance, Placement, checked, room

NOWHERE = -1

PRICED_SHARE = 1e-4
"""Of the smallest workload: an overload of that much costs more than any move can save."""


class State:
    """Where each container is, or ``NOWHERE``, and what every move would change, kept up to date.

    ``pays[c, d]`` is what container c would draw on device d as everything else stands now, its
    flows to other containers included. So a shift is judged by two numbers and a swap by four, and
    a move costs one row per container that has a flow with what moved. Overload is allowed at a
    ``price``, mW per workload beyond a capacity; more than any move can save.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.device_of: Ints = np.full(instance.containers, NOWHERE, dtype=np.intp)
        self.pays: Matrix = instance.alone.copy()  # shape (T + S, D), mW
        self.load: Matrix = np.zeros(instance.devices)  # workload
        self._room = room(instance)
        self._work = instance.work
        self._flows: list[tuple[Ints, Matrix]] = _flows(instance)
        least_work = float(self._work[self._work > 0].min()) if self._work.any() else 1.0
        tied = sum(float(mw.sum()) for _, mw in self._flows) * float(instance.hops.max())
        dear = float(instance.alone.max(initial=0.0)) + tied + 1.0
        self.price = dear / (least_work * PRICED_SHARE)

    def copy_from(self, other: "State") -> None:
        self.device_of[:] = other.device_of
        self.pays[:] = other.pays
        self.load[:] = other.load

    @property
    def overload(self) -> float:
        return float(np.maximum(self.load - self._room, 0.0).sum())

    def put(self, c: int, d: int) -> None:
        self.device_of[c] = d
        self.load[d] += self._work[c]
        others, mw = self._flows[c]
        self.pays[others] += mw[:, None] * self.instance.hops[d]

    def lift(self, c: int) -> None:
        d = self.device_of[c]
        self.device_of[c] = NOWHERE
        self.load[d] -= self._work[c]
        others, mw = self._flows[c]
        self.pays[others] -= mw[:, None] * self.instance.hops[d]

    def cost_of_putting(self, c: int) -> Matrix:
        """Per device, what it costs to put a container there that is nowhere, shape (D,)."""
        beyond = self.load + self._work[c] - self._room
        excess = np.minimum(np.maximum(beyond, 0.0), self._work[c])
        costs: Matrix = self.pays[c] + self.price * excess
        return costs

    def improve(self, c: int) -> tuple[int, ...]:
        """Make the best shift or swap of ``c``, if one saves anything; return what moved."""
        here = int(self.device_of[c])
        shift = self._shift_savings(c, here)
        to = int(shift.argmax())
        swap = self._swap_savings(c, here)
        partner = int(swap.argmax())
        least = 1e-9 * (1.0 + float(self.pays[c, here]))
        least += 1e-13 * self.price * float(self.load.max())  # what rounding may pretend
        if max(shift[to], swap[partner]) <= least:
            return ()
        there = to if shift[to] >= swap[partner] else int(self.device_of[partner])
        self.lift(c)
        swapped = shift[to] < swap[partner]
        if swapped:
            self.lift(partner)
            self.put(partner, here)
        self.put(c, there)
        return (c, partner) if swapped else (c,)

    def partners(self, c: int) -> Ints:
        return self._flows[c][0]

    def _shift_savings(self, c: int, here: int) -> Matrix:
        work = self._work[c]
        before = np.maximum(self.load - self._room, 0.0)
        after = np.maximum(self.load + work - self._room, 0.0)
        relief = before[here] - max(self.load[here] - work - self._room[here], 0.0)
        saved: Matrix = self.pays[c, here] - self.pays[c] + self.price * (relief - after + before)
        saved[here] = 0.0
        return saved

    def _swap_savings(self, c: int, here: int) -> Matrix:
        """Per other container, what exchanging places saves."""
        there = self.device_of
        everyone = np.arange(len(there))
        saved: Matrix = self.pays[c, here] - self.pays[c, there]
        saved += self.pays[everyone, there] - self.pays[:, here]
        others, mw = self._flows[c]
        saved[others] -= 2.0 * mw * self.instance.hops[here, there[others]]
        grows = self._work[c] - self._work  # of the partner's device
        over = np.maximum(self.load - self._room, 0.0)
        over_here = np.maximum(self.load[here] - grows - self._room[here], 0.0)
        over_there = np.maximum(self.load[there] + grows - self._room[there], 0.0)
        saved += self.price * (over[here] - over_here + over[there] - over_there)
        saved[there == here] = 0.0
        return saved


def _flows(instance: Instance) -> list[tuple[Ints, Matrix]]:
    """Per container: the containers it has flows with, and mW per hop of each flow."""
    weights = instance.network_power * instance.shared_traffic
    brokers = [(row.nonzero()[0] + instance.topics, row[row > 0]) for row in weights]
    services = [(column.nonzero()[0], column[column > 0]) for column in weights.T]
    return [*brokers, *services]


VISITS_MAX = 200  # at each container on average, while improving once

RUINED_MAX = 24
BOLDNESS = (0.05, 0.5, 3.0)
"""How much dearer than it is a device may look while building again; one of these each time."""

ROUNDS_MAX = 1_000
WORK_UNITS = 400_000_000  # rounds times containers times devices that a search spends by default

SPLIT_UNITS = 6e9  # pairs times squared devices that a bound spends on splits by default


def search(
    instance: Instance,
    *,
    seed: int,
    rounds: int | None = None,
    price_steps: int = 60,
    split_passes: int | None = None,
) -> Placement | None:
    """A placement with a proven bound; ``None``: none was found, which proves nothing.

    It tears out and rebuilds ``rounds`` times, by default as often as ``WORK_UNITS`` allow; for
    ``split_passes``, of ``lower_bound``, these are ``SPLIT_UNITS``, and 100 at most.
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


Rule = Callable[[State, int], int]  # where to put a container that is nowhere


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
    for _ in range(VISITS_MAX * containers):
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

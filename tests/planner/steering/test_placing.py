"""Where cores go, and when: a federation in numbers tells of its meshes."""

import random
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import pytest

from federator.planner.steering.moves import Manner
from federator.planner.steering.placing import CorePlacer
from federator.protocol.messages.steering import (
    MESHES_MAX,
    STEERING_VERSION,
    LinkLoad,
    Load,
    MeshFlow,
    MeshLoad,
)

EVERY_MS = 2_000
FILTER = "plant/7/temp"
LINE = {(1, 2): 1, (2, 3): 1, (3, 4): 1, (4, 5): 1}


@dataclass
class Meshes:
    """Agents that tell of meshes, and a placer that asks them."""

    links: dict[Any, Any] = field(default_factory=lambda: dict(LINE))  # costs
    wanted: dict[Any, Any] = field(default_factory=lambda: {1: {FILTER}, 4: {FILTER}, 5: {FILTER}})
    published: dict[Any, Any] = field(default_factory=lambda: {4: {FILTER: 100.0}})
    followers: set[Any] = field(default_factory=lambda: {1, 2, 3, 4, 5})
    own: dict[Any, Any] = field(default_factory=dict)  # configured priorities
    silent: set[Any] = field(default_factory=set)
    noise: float = 0.0
    now_ms: int = 1_000_000

    def __post_init__(self):
        self.placer = CorePlacer(Manner())
        self.rng = random.Random(1)
        self.asked, self.number, self.moves = (), 0, []
        self.brokers = sorted({end for ends in self.links for end in ends})
        self.began_ms = self.now_ms

    def told(self, broker):
        links = self.links | {(b, a): cost for (a, b), cost in self.links.items()}
        flows = [
            MeshFlow((f,), max(0.0, rate * self.rng.gauss(1.0, self.noise)))
            for f, rate in self.published.get(broker, {}).items()
            if rate
        ]
        wanted = tuple(f for f in self.asked if f in self.wanted.get(broker, ()))
        return Load(
            STEERING_VERSION, "fed", broker, 1, self.now_ms,
            tuple(LinkLoad(b, cost, 0.0) for (a, b), cost in sorted(links.items()) if a == broker),
            (), number=self.number, placed=broker in self.followers,
            meshes=MeshLoad(self.own.get(broker, 0), tuple(flows), wanted),
        )  # fmt: skip

    def step(self, *, obeyed=True):
        for broker in self.brokers:
            if broker not in self.silent:
                self.placer.on_load(self.told(broker), now_ms=self.now_ms)
        placing = self.placer.decide(now_ms=self.now_ms)
        if not obeyed:
            self.placer.take_back()
        if placing.changed:
            self.moves.append(((self.now_ms - self.began_ms) / 1_000, placing))
        if placing.asked != self.asked:
            self.asked, self.number = placing.asked, self.number + 1
            self.placer.ask(self.asked, number=self.number)
        self.now_ms += EVERY_MS
        return placing

    def run(self, seconds, **options):
        for _ in range(int(seconds * 1_000 / EVERY_MS)):
            placing = self.step(**options)
        return placing

    def core(self, filter_=FILTER):
        members = [b for b in self.brokers if filter_ in self.wanted.get(b, ())]
        placed = self.placer.priorities
        return min(members, key=lambda b: (placed.get(b, self.own.get(b, 0)), b))


def test_a_core_goes_to_its_traffic_once_that_has_lasted():
    meshes = Meshes()

    placing = meshes.run(30)

    ((seconds, moved),) = meshes.moves
    assert 10 <= seconds <= 20
    (move,) = moved.moves
    assert (move.filter, move.was, move.core, move.rate) == (FILTER, 1, 4, 100.0)
    assert (moved.cost, moved.cost_promised) == (100.0 * (3 + 7), 100.0 * (0 + 4))
    assert meshes.core() == 4
    assert placing.cost == moved.cost_promised
    assert all(priority < 0 for priority in placing.priorities.values())


def test_costs_of_links_count_and_not_their_number():
    meshes = Meshes(
        links={(1, 2): 1, (2, 3): 1, (1, 3): 10},  # by hops, 1 and 2 are alike
        wanted={1: {FILTER}, 2: {FILTER}},
        published={3: {FILTER: 10.0}},
    )

    meshes.run(30)

    assert meshes.core() == 2


@pytest.mark.parametrize("seed", range(5))
def test_orders_are_close_to_the_best_of_all_permutations(seed):
    rng = random.Random(seed)
    filters = [f"f/{n}" for n in range(6)]
    wanted = {b: set(rng.sample(filters, 3)) for b in range(1, 6)}
    published = {b: {f: rng.uniform(1, 50) for f in rng.sample(filters, 2)} for b in range(1, 6)}
    meshes = Meshes(wanted=wanted, published=published)

    meshes.run(40)

    def cost(order):
        total = 0.0
        for f in filters:
            members = [b for b in order if f in wanted[b]]
            for b in published if members else ():
                rate, core = published[b].get(f, 0.0), members[0]
                total += rate * (abs(b - core) + sum(abs(core - m) for m in members))
        return total

    placed = meshes.placer.priorities
    ours = cost(sorted(meshes.brokers, key=lambda b: (placed.get(b, 0), b)))
    best = min(cost(order) for order in permutations(meshes.brokers))
    assert best <= ours <= best / (1 - Manner().margin)


def test_a_burst_of_two_seconds_moves_nothing():
    meshes = Meshes(published={4: {}})
    meshes.run(60)
    meshes.published[4][FILTER] = 100.0 * 2 / 10  # agents tell rates of the last ten seconds

    meshes.run(12)
    meshes.published[4][FILTER] = 0.0
    meshes.run(60)

    assert not meshes.moves


def test_noise_moves_nothing_and_a_lasting_shift_waits_for_the_hold():
    meshes = Meshes(noise=0.2)
    meshes.run(60)
    meshes.published = {1: {FILTER: 100.0}}
    meshes.run(600)

    first, second = (seconds for seconds, _ in meshes.moves[:2])
    assert second - first >= Manner().hold_ms / 1_000
    assert len(meshes.moves) <= 3
    assert meshes.core() == 1


def test_without_traffic_the_configured_order_returns():
    meshes = Meshes()
    meshes.run(60)
    assert meshes.core() == 4
    meshes.published = {}

    meshes.run(400)

    assert meshes.placer.priorities == {}
    assert "configurations" in meshes.moves[-1][1].why


def test_a_flash_of_subscribers_moves_nothing():
    meshes = Meshes(wanted={1: {FILTER}, 2: {FILTER}}, published={1: {FILTER: 50.0}})
    meshes.run(60)

    meshes.wanted |= {3: {FILTER}, 4: {FILTER}, 5: {FILTER}}  # for these 2 would be better
    meshes.run(10)
    meshes.wanted = {1: {FILTER}, 2: {FILTER}}
    meshes.run(60)

    assert not meshes.moves


def test_who_stops_to_follow_is_counted_under_its_own_priority():
    meshes = Meshes()
    meshes.run(60)
    assert meshes.core() == 4
    meshes.followers = {1, 2, 3, 5}

    meshes.run(400)

    placed = meshes.placer.priorities
    assert 4 not in placed
    assert placed[5] < placed[1]


def test_nothing_moves_while_an_agent_is_silent_or_none_follows():
    silent = Meshes()
    silent.run(4)
    silent.silent = {2}
    assert "silent" in silent.run(40).why
    assert not silent.moves

    deaf = Meshes(followers=set())
    assert "placed" in deaf.run(60).why
    assert not deaf.moves


def test_a_broker_that_does_not_follow_keeps_its_rank():
    meshes = Meshes(own={1: -9}, followers={4, 5})

    meshes.run(60)

    assert not meshes.moves


def test_what_nobody_obeys_is_forgotten():
    meshes = Meshes()

    meshes.run(60, obeyed=False)

    assert len(meshes.moves) > 1
    assert meshes.placer.priorities == {}


def test_a_successor_goes_on_and_moves_nothing_at_once():
    meshes = Meshes(published={1: {FILTER: 100.0}})
    meshes.placer.adopt({4: -1}, now_ms=meshes.now_ms)

    meshes.run(60)

    assert not meshes.moves
    assert meshes.core() == 4


def test_a_crowd_of_filters_is_asked_about_within_bounds_heaviest_first():
    crowd = {f"crowd/{n}": 1.0 for n in range(2 * MESHES_MAX)}
    meshes = Meshes(published={4: {FILTER: 100.0}, 5: crowd | {"x" * 60_000: 1e6}})

    meshes.run(30)

    assert len(meshes.asked) == MESHES_MAX
    assert FILTER in meshes.asked
    assert meshes.core() == 4

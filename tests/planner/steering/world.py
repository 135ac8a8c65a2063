"""A federation in numbers: links, flows with true rates, what agents would tell of them."""

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from federator.planner.steering.decision import Decider
from federator.protocol.messages.steering import STEERING_VERSION, FlowLoad, LinkLoad, Load

EVERY_MS = 2_000


@dataclass
class World:
    """Links by their ends: (cost, capacity). Flows by (origin, filters): (destinations, rate)."""

    links: dict[Any, Any]
    flows: dict[Any, Any]
    noise: float = 0.0  # of each told rate, as a share
    error: float | None = None  # what agents hold that noise for; theirs is the truth by default
    manner: object = None
    seed: int = 0
    silent: set[Any] = field(default_factory=set)  # agents that tell nothing
    closed: set[Any] = field(default_factory=set)  # links that rules close
    background: dict[Any, Any] = field(default_factory=dict)  # bit/s by ends
    learnt: bool = False  # capacities were, and not told by operators
    window: int = 1  # samples of which agents tell the mean
    now_ms: int = 1_000_000

    def __post_init__(self):
        self.decider = Decider(self.manner)
        self.known = {}
        self.history = deque(maxlen=self.window)  # (rates of flows, loads of links)
        self.trees = {}  # as followed
        self.rng = random.Random(self.seed)
        self.moves = []  # (seconds, move)
        self.began_ms = self.now_ms

    @property
    def seconds(self):
        return (self.now_ms - self.began_ms) / 1_000

    def ordinary(self, origin, destination):
        """The way by a textbook: least cost, then the smallest next broker, hop by hop."""
        key = origin, destination, len(self.links)
        if key not in self.known:
            self.known[key] = self.found_ordinary(origin, destination)
        return self.known[key]

    def found_ordinary(self, origin, destination):
        far = {destination: 0}
        for _ in self.links:
            for (a, b), (cost, _) in self.links.items():
                if b in far and far[b] + cost < far.get(a, float("inf")):
                    far[a] = far[b] + cost
        at, way = origin, []
        while at != destination:
            hops = [b for (a, b), (cost, _) in self.links.items() if a == at and b in far]
            onward = min(hops, key=lambda b: (self.links[at, b][0] + far[b], b))
            way.append((at, onward))
            at = onward
        return way

    def way(self, flow):
        if flow in self.trees and all(ends in self.links for ends in self.trees[flow].edges):
            return set(self.trees[flow].edges)
        destinations, _ = self.flows[flow]
        return {ends for each in destinations for ends in self.ordinary(flow[0], each)}

    def loads(self):
        """What each link truly carries, bit/s."""
        carried = {ends: self.background.get(ends, 0.0) for ends in self.links}
        for flow, (_, rate) in self.flows.items():
            for ends in self.way(flow):
                carried[ends] += rate
        return carried

    def fullest(self):
        return max(rate / self.links[ends][1] for ends, rate in self.loads().items())

    def noisy(self, rate):
        return max(0.0, rate * self.rng.gauss(1.0, self.noise))

    def told(self, broker, carried=None):
        rates = {flow: rate for flow, (_, rate) in self.flows.items()}
        history = list(self.history) or [(rates, carried or self.loads())]

        def mean(kind, key):
            return sum(past[kind].get(key, 0.0) for past in history) / len(history)

        error = self.noise if self.error is None else self.error
        links = [
            LinkLoad(
                b,
                cost=cost,
                rate=min(self.noisy(mean(1, (a, b))), capacity or 1e12),
                capacity=capacity,
                open=(a, b) not in self.closed,
                learnt=self.learnt and capacity is not None,
            )
            for (a, b), (cost, capacity) in sorted(self.links.items())
            if a == broker
        ]
        flows = [
            FlowLoad(
                flow[1],
                tuple(destinations),
                rate=self.noisy(mean(0, flow)),
                error=error * mean(0, flow),
                publications=1.0,
                planned=flow in self.trees,
            )
            for flow, (destinations, _) in self.flows.items()
            if flow[0] == broker
        ]
        flows.sort(key=lambda each: -each.rate)
        return Load(STEERING_VERSION, "fed", broker, 1, self.now_ms, tuple(links), tuple(flows))

    def tell(self):
        carried = self.loads()
        self.history.append(({flow: rate for flow, (_, rate) in self.flows.items()}, carried))
        for broker in sorted({end for ends in self.links for end in ends} - self.silent):
            self.decider.on_load(self.told(broker, carried), now_ms=self.now_ms)

    def step(self):
        """Agents tell, the steerer decides, agents follow."""
        self.tell()
        decision = self.decider.decide(now_ms=self.now_ms)
        self.moves += [(self.seconds, move) for move in decision.moves]
        self.trees = {(tree.origin, tree.filters): tree for tree in decision.trees}
        self.now_ms += EVERY_MS
        return decision

    def run(self, seconds):
        decision = None
        for _ in range(int(seconds * 1_000 / EVERY_MS)):
            decision = self.step()
        return decision

    def set_rate(self, flow, rate):
        self.flows[flow] = (self.flows[flow][0], rate)


def both(links):
    """Links in both directions."""
    return links | {(b, a): what for (a, b), what in links.items()}


def square(**options):
    """Two ways from 1 to 4: by 2, which is cheap, and by 3; three flows want the cheap one."""
    links = both({(1, 2): (1, 100.0), (2, 4): (1, 100.0), (1, 3): (2, 100.0), (3, 4): (2, 100.0)})
    flows = {(1, ("a",)): ((4,), 50.0), (1, ("b",)): ((4,), 40.0), (1, ("c",)): ((4,), 30.0)}
    return World(links, flows, **options)


def random_world(rng, brokers=8, extra=6, flows=20, **options):
    """A connected graph, and demand that fills some of its links."""
    links, ids = {}, list(range(1, brokers + 1))
    for each in ids[1:]:
        links[rng.choice(ids[: each - 1]), each] = (rng.randint(1, 5), 100.0)
    for _ in range(extra):
        a, b = rng.sample(ids, 2)
        if (b, a) not in links:
            links[a, b] = (rng.randint(1, 5), 100.0)
    wanted = {}
    for number in range(flows):
        origin = rng.choice(ids)
        others = [each for each in ids if each != origin]
        wants = tuple(sorted(rng.sample(others, rng.randint(1, 2))))
        wanted[origin, (f"t/{number}",)] = (wants, rng.uniform(5, 20))
    return World(both(links), wanted, **options)

"""Narrow links that let traffic wait: what agents measure there, and what a steerer makes of it.

Traffic is a fluid in steps of ``STEP_S``. Each link carries its capacity, lets as much wait as its
queue holds, and loses the rest. What waits has the way that its flow had when it was published.
The meter of links is the product's own; rates of flows are means of ten windows, as ``FlowMeter``
tells them.
"""

import functools
import math
import random
from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from federator.planner.flow.watch import UNWATCHED
from federator.planner.methods import SOLVERS, Method
from federator.planner.steering.decision import Decider
from federator.planner.steering.fitting import Problem, Wish
from federator.protocol.messages.steering import STEERING_VERSION, FlowLoad, LinkLoad, Load
from federator.protocol.steering.link_meter import LinkMeter, LinkSample
from lab.steered import demands
from lab.steered.run import CAPACITY

STEP_S = 0.25
STEPS = round(1 / STEP_S)
TOLD_S = 2
WINDOWS = 10
FILL = 0.9
"""So full links are at most in some answer."""

NETWORK = demands.NETWORK


@functools.cache
def drawn(seed):
    """A demand that just fits at ``FILL``, and overloads a link by shortest paths."""
    low, high = FILL / demands.FILL_DRAWN, 2.0
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(scaled(seed, middle)) else (low, middle)
    return scaled(seed, low)


def scaled(seed, times):
    return tuple(replace(each, rate=each.rate * times) for each in demands.draw(seed))


def fits(flows):
    """Whether some answer leaves no link fuller than ``FILL``."""
    room = np.full(len(NETWORK.links), float(CAPACITY))
    wishes = tuple(
        Wish(d.origin, (d.destination,), d.rate, NETWORK.way(d.origin, (d.destination,)))
        for d in flows
    )
    instance = Problem(NETWORK, wishes, room, room).instance(FILL)
    return SOLVERS[Method.EXACT](instance, seed=0, watch=UNWATCHED).unmet == 0


@dataclass
class _Line:
    """One direction of a link: bits that wait, by flow and way, and what left."""

    capacity: float
    room: float
    waiting: dict[Any, float] = field(default_factory=dict)
    left: float = 0.0
    emptied: int = 0

    def step(self, arrived):
        """What leaves, by flow and way, and how many bits found no room."""
        for key, bits in arrived.items():
            self.waiting[key] = self.waiting.get(key, 0.0) + bits
        total = sum(self.waiting.values())
        out = min(total, self.capacity * STEP_S)
        kept = min(total - out, self.room)
        self.emptied += not kept
        self.left += out
        leaves = {key: bits * out / total for key, bits in self.waiting.items()} if total else {}
        stays = {key: bits * kept / total for key, bits in self.waiting.items()} if kept else {}
        self.waiting = stays
        return leaves, total - out - kept

    def sample(self, now_ms):
        """As an agent takes it."""
        waits = sum(self.waiting.values())
        return LinkSample(now_ms, int(self.left / 8), int(waits / 8), (1, self.emptied))


class Waiting:
    """Six brokers in two rows, as ``federator-lab steered`` has them.

    Attributes:
        lost: Bits of each second that found no room.
        moves: (second, flow).
    """

    def __init__(self, flows, *, queue_bytes, told, noise=0.1, seed=0, capacity=CAPACITY):
        self.flows = {(d.origin, (d.topic,)): ((d.destination,), d.rate) for d in flows}
        self.lines = {ends: _Line(float(capacity), 8.0 * queue_bytes) for ends in NETWORK.links}
        self.told = told
        self.noise = noise
        self.rng = random.Random(seed)
        self.decider = Decider()
        self.meters = {broker: LinkMeter() for broker in NETWORK.brokers}
        self.windows = {key: deque(maxlen=WINDOWS) for key in self.flows}
        self.trees = {}
        self.passing = defaultdict(lambda: defaultdict(float))  # arrives at links next
        self.lost, self.moves, self.why = [], [], []
        self.seconds = 0

    def way(self, flow):
        if (tree := self.trees.get(flow)) is not None:
            return tuple(sorted(NETWORK.at[ends] for ends in tree.edges))
        return NETWORK.way(flow[0], self.flows[flow][0])

    def loads(self):
        """What each link is meant to carry, of its capacity."""
        carried = dict.fromkeys(NETWORK.links, 0.0)
        for flow, (_, rate) in self.flows.items():
            for link in self.way(flow):
                carried[NETWORK.links[link]] += rate
        return {ends: rate / self.lines[ends].capacity for ends, rate in carried.items()}

    def run(self, seconds):
        for _ in range(seconds):
            self._second()
        return self

    def _second(self):
        rates = {
            flow: max(0.0, rate * self.rng.gauss(1.0, self.noise))
            for flow, (_, rate) in self.flows.items()
        }
        ways = {flow: frozenset(NETWORK.links[link] for link in self.way(flow)) for flow in rates}
        self.lost.append(sum(self._step(rates, ways) for _ in range(STEPS)))
        self.seconds += 1
        now_ms = 1_000_000 + 1_000 * self.seconds
        for flow, rate in rates.items():
            self.windows[flow].append(rate)
        for broker, meter in self.meters.items():
            lines = {b: self.lines[a, b] for a, b in NETWORK.links if a == broker}
            meter.take({to: line.sample(now_ms) for to, line in lines.items()})
        if self.seconds % TOLD_S == 0:
            self._decide(now_ms)

    def _step(self, rates, ways):
        arrived, self.passing = self.passing, defaultdict(lambda: defaultdict(float))
        for flow, rate in rates.items():
            self._enter(arrived, flow, ways[flow], at=flow[0], bits=rate * STEP_S)
        lost = 0.0
        for ends, line in self.lines.items():
            leaves, over = line.step(arrived.get(ends, {}))
            lost += over
            for (flow, way), bits in leaves.items():
                self._enter(self.passing, flow, way, at=ends[1], bits=bits)
        return lost

    def _enter(self, arrived, flow, way, *, at, bits):
        for ends in way:
            if ends[0] == at:
                arrived[ends][flow, way] += bits

    def _decide(self, now_ms):
        for broker in NETWORK.brokers:
            self.decider.on_load(self._load(broker, now_ms), now_ms=now_ms)
        decision = self.decider.decide(now_ms=now_ms)
        self.why.append((self.seconds, decision.why))
        self.moves += [(self.seconds, (move.origin, move.filters)) for move in decision.moves]
        self.trees = {(tree.origin, tree.filters): tree for tree in decision.trees}

    def _load(self, broker, now_ms):
        meter = self.meters[broker]
        links = tuple(
            LinkLoad(
                b,
                cost=1,
                rate=meter.rate(b) or 0.0,
                queue=meter.queue_bytes(b),
                capacity=self.lines[a, b].capacity if self.told else meter.capacity(b),
                learnt=not self.told and meter.capacity(b) is not None,
            )
            for a, b in NETWORK.links
            if a == broker
        )
        flows = [self._flow(flow) for flow in self.flows if flow[0] == broker]
        flows.sort(key=lambda each: -each.rate)
        return Load(STEERING_VERSION, "fed", broker, 1, now_ms, links, tuple(flows))

    def _flow(self, flow):
        windows, (destinations, _) = self.windows[flow], self.flows[flow]
        rate = sum(windows) / len(windows)
        spread = sum((each - rate) ** 2 for each in windows) / max(1, len(windows) - 1)
        error = math.sqrt(spread / len(windows))
        return FlowLoad(flow[1], destinations, rate, error, 1.0, planned=flow in self.trees)

    # -- what is to be shown -----------------------------------------------------------------------

    def lost_share(self, since):
        """Of what was published from that second on."""
        rates = sum(rate for _, rate in self.flows.values())
        return sum(self.lost[since:]) / (rates * (self.seconds - since))

    def again(self, span_s=300):
        """Flows that moved twice within ``span_s``, and when."""
        times = defaultdict(list)
        for second, flow in self.moves:
            times[flow].append(second)
        return {
            flow: at for flow, at in times.items() if any(b - a < span_s for a, b in pairwise(at))
        }

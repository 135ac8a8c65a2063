"""Narrow links that let traffic wait: what agents measure there, and what a steerer makes of it.

Six data planes, as agents have them, carry publications of QoS 0 over links that have a rate and a
queue each. Meters of links and flows are the product's own, and so is the steerer; what it decides,
each agent hears a little later.
"""

import functools
import random
import struct
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
from mqtt5 import PublishPacket

from federator.planner.flow.watch import UNWATCHED
from federator.planner.methods import SOLVERS, Method
from federator.planner.steering.decision import Decider
from federator.planner.steering.fitting import Problem, Wish
from federator.protocol.effects import FilterRoute
from federator.protocol.messages.steering import STEERING_VERSION, LinkLoad, Load, passes
from federator.protocol.steering.link_meter import LinkMeter, LinkSample
from lab.steered import demands
from lab.steered.narrow import CAPACITY
from tests.protocol.data.narrow import Narrow, NarrowWorld

PACKET_BYTES = 8_192
LABEL_BYTES = 160
"""What a frame takes beside the padding of its one publication, or a little less."""

TOLD_S = 2
HEARD_MS_MAX = 400
"""So much later than others an agent hears of a plan."""

FILL = 0.9
"""So full links are at most in some answer."""

NETWORK = demands.NETWORK
_NUMBER = struct.Struct(">Q")


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


class Waiting(NarrowWorld):
    """Six brokers in two rows, as ``federator-lab steered`` has them.

    Attributes:
        lost: Bits of each second that found no room.
        moves: (second, flow).
        steps_back: Publications that came behind later ones, by flow.
    """

    def __init__(self, flows, *, queue_bytes, told, noise=0.1, seed=0, capacity=CAPACITY):
        super().__init__(NETWORK.brokers, self._came, flows_max=32)
        self.flows = {(d.origin, (d.topic,)): ((d.destination,), d.rate) for d in flows}
        self.capacity, self.told, self.noise = capacity, told, noise
        self.rng = random.Random(seed)
        self.decider, self.trees = Decider(), {}
        self.meters = {broker: LinkMeter() for broker in NETWORK.brokers}
        self.lines = {
            ends: Narrow(self, ends[1], bytes_per_ms=capacity / 8_000, queue_bytes=queue_bytes)
            for ends in NETWORK.links
        }
        self.published = Counter()
        self.last = dict.fromkeys(self.flows, -1)  # the greatest number that came
        self.steps_back = Counter()
        self.lost, self.moves, self.why = [], [], []
        self.seconds = 0
        self._connect()

    def _connect(self):
        for a, b in NETWORK.links:
            self.planes[a].reach(b, self.lines[a, b], self.now, takes_bundles=True)
        for id, plane in self.planes.items():
            plane.tend(self.now)
            others = [other for other in NETWORK.brokers if other != id]
            plane.set_destinations({other: self._onward(id, other) for other in others}, self.now)
            for (_, filters), (ends, _) in self.flows.items():
                plane.set_route(
                    filters[0], FilterRoute(id in ends, id not in ends, (), ends), self.now
                )

    @staticmethod
    def _onward(id, other):
        ways = (NETWORK.links[link] for link in NETWORK.way(id, (other,)))
        return next(b for a, b in ways if a == id)

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
        return {ends: rate / self.capacity for ends, rate in carried.items()}

    def run(self, seconds):
        """Publish for so long, and let all come that waits."""
        for _ in range(seconds):
            self._second()
        while self._events or any(plane.moves for plane in self.planes.values()):
            self.run_until(self.now_ms + 1_000)
        return self

    def _second(self):
        for flow, (_, rate) in self.flows.items():
            self._publish(flow, max(0.0, rate * self.rng.gauss(1.0, self.noise)))
        dropped = sum(line.dropped_bytes for line in self.lines.values())
        self.seconds += 1
        self.run_until(1_000.0 * self.seconds)
        after = sum(line.dropped_bytes for line in self.lines.values())
        self.lost.append(8 * (after - dropped))
        for broker, plane in self.planes.items():
            plane.tend(self.now)
            lines = {b: self.lines[a, b] for a, b in NETWORK.links if a == broker}
            self.meters[broker].take({to: self._sample(line) for to, line in lines.items()})
        if self.seconds % TOLD_S == 0:
            self._decide()

    def _publish(self, flow, rate):
        """In the second that begins, evenly."""
        count = max(1, round(rate / 8 / PACKET_BYTES))
        shift = self.rng.random()
        for number in range(count):
            at_ms = self.now_ms + 1_000 * (number + shift) / count
            self.at(at_ms, self._publish_one, flow, round(rate / 8 / count))

    def _publish_one(self, flow, size):
        payload = _NUMBER.pack(self.published[flow]) + bytes(max(0, size - LABEL_BYTES))
        self.published[flow] += 1
        self.read(flow[0], PublishPacket(flow[1][0], payload).write())

    def _came(self, id, packet):
        if (flow := self._flow_of.get(packet.topic)) is None:
            return
        [number] = _NUMBER.unpack_from(packet.payload)
        self.steps_back[flow] += number < self.last[flow]
        self.last[flow] = max(number, self.last[flow])

    @functools.cached_property
    def _flow_of(self):
        return {flow[1][0]: flow for flow in self.flows}

    def _sample(self, line):
        waits = line.waiting_bytes
        left = line.taken_bytes - waits
        return LinkSample(int(self.now_ms), left, waits, (1, line.emptied))

    def _decide(self):
        now_ms = 1_000_000 + int(self.now_ms)
        for broker in NETWORK.brokers:
            self.decider.on_load(self._load(broker, now_ms), now_ms=now_ms)
        decision = self.decider.decide(now_ms=now_ms)
        self.why.append((self.seconds, decision.why))
        self.moves += [(self.seconds, (move.origin, move.filters)) for move in decision.moves]
        self.trees = {(tree.origin, tree.filters): tree for tree in decision.trees}
        for broker, plane in self.planes.items():
            ours = [tree for tree in decision.trees if passes(tree, broker)]
            self.at(self.now_ms + self.rng.uniform(0, HEARD_MS_MAX), self._follow, plane, ours)

    def _follow(self, plane, trees):
        plane.follow_trees(trees, self.now)

    def _load(self, broker, now_ms):
        meter, plane = self.meters[broker], self.planes[broker]
        links = tuple(
            LinkLoad(
                b,
                cost=1,
                rate=meter.rate(b) or 0.0,
                queue=meter.queue_bytes(b),
                capacity=self.capacity if self.told else meter.capacity(b),
                learnt=not self.told and meter.capacity(b) is not None,
            )
            for a, b in NETWORK.links
            if a == broker
        )
        flows, rest = plane.intake.flows.told(plane.forwarder, steerable=True)
        return Load(STEERING_VERSION, "fed", broker, 1, now_ms, links, flows, rest)

    # -- what is to be shown -----------------------------------------------------------------------

    def lost_share(self, since):
        """Of what was published from that second on."""
        rates = sum(rate for _, rate in self.flows.values())
        return sum(self.lost[since:]) / (rates * (self.seconds - since))

    @property
    def unsettled(self):
        """Moves of flows that did not see their former way empty."""
        return sum(plane.counters.flows_unsettled for plane in self.planes.values())

    def again(self, span_s=300):
        """Flows that moved twice within ``span_s``, and when."""
        times = defaultdict(list)
        for second, flow in self.moves:
            times[flow].append(second)
        return {
            flow: at for flow, at in times.items() if any(b - a < span_s for a, b in pairwise(at))
        }

"""The simulator's world with loads: agents measure what they carry, and somebody steers, or nobody.

Nodes, data planes, meters and plan followers are the product's own. Once a second each flow
publishes as many bytes as it has in a second, so what links carry is what really crossed the wires.
Who steers is told by a name: ``none``, ``local`` or ``central``.
"""

import random
from collections import deque
from typing import Final

from mqtt5 import PublishPacket

from federator.planner.steering.decision import Decider
from federator.protocol.messages import json_codec
from federator.protocol.messages.steering import (
    LOAD_EVERY_MS,
    STEERING_VERSION,
    LinkLoad,
    Load,
    Tree,
    passes,
)
from federator.protocol.parameters import Parameters
from federator.protocol.steering.link_meter import LinkMeter, LinkSample
from federator.protocol.types import BrokerId, Cost, Millis
from lab.local_steering.agent import SAMPLE_MS, TURN_MS
from lab.local_steering.chooser import turn_offset_ms
from lab.local_steering.demand import CAPACITY, Demand, Flow
from lab.local_steering.steered_world import KIND, SteeredWorld
from lab.local_steering.words import Ends
from lab.sim.data import FEDERATION, NUMBER_BYTES
from lab.sim.network import Agent
from lab.sim.plan import LinkPlan, WorldPlan

FLOWS_MAX: Final = 64
SECOND_MS: Final = 1_000
BEGIN_MS: Final = 5_000
"""Until then the federation comes to rest and nobody publishes."""

SAMPLES_KEPT: Final = 10


class LoadedWorld(SteeredWorld):
    """A federation under a demand, steered by ``steerer``."""

    flows_max = FLOWS_MAX

    def __init__(
        self, demand: Demand, steerer: str, *, noise: float = 0.0, noise_ms: int = 2_000
    ) -> None:
        self.demand = demand
        self.moves: list[tuple[float, Flow]] = []  # after how many seconds, which
        self.control_bytes = 0  # of whoever steers
        self._steerer, self._noise, self._noise_ms = steerer, noise, noise_ms
        self._dice = random.Random(f"noise {demand.seed}")
        self._factors: dict[Flow, float] = {}
        self._meters: dict[BrokerId, LinkMeter] = {}
        self._left: dict[Ends, deque[int]] = {}
        self.decider = Decider()
        super().__init__(_plan(demand), seed=demand.seed)
        for flow in demand.flows:
            offset_ms = self._dice.randrange(SECOND_MS)
            self.agenda.at(BEGIN_MS + offset_ms, self._publish_second, flow)
        self.agenda.at(BEGIN_MS, self._measure)
        if steerer == "local":
            for id in demand.brokers:
                self.agenda.at(BEGIN_MS + self._dice.randrange(SAMPLE_MS), self._sample, id)
                self.agenda.at(BEGIN_MS + turn_offset_ms(id, TURN_MS), self._turn, id)
        elif steerer == "central":
            self.agenda.at(BEGIN_MS, self._decide)

    # --- what is seen from outside ---

    @property
    def seconds(self) -> float:
        """Since flows began."""
        return (self.now_ms - BEGIN_MS) / SECOND_MS

    def pass_time(self, seconds: float) -> None:
        """Let so many seconds pass, once flows have begun."""
        self.run_until(int(max(self.now_ms, BEGIN_MS) + seconds * SECOND_MS))

    def trees(self) -> dict[Flow, Tree]:
        """The trees that origins follow."""
        if self._steerer == "local":
            found = [tree for id in sorted(self.locals) for tree in self.locals[id].own_trees]
        else:
            found = list(self.decider.trees)
        return {(tree.origin, tree.filters[0]): tree for tree in found}

    def fill(self) -> dict[Ends, float]:
        """What crossed each link in the last ten seconds, over its capacity."""
        return {
            ends: 8 * (left[-1] - left[0]) / (len(left) - 1) / CAPACITY
            for ends, left in self._left.items()
            if len(left) > 1
        }

    def data_bytes(self) -> int:
        """What crossed all links."""
        sent = self.wires.bytes_sent
        return sum(sent[(*ends, "data")] for ends in self.demand.costs)

    def steering_bytes(self) -> int:
        """What whoever steers made agents send, over links or to it, and what it sent."""
        sent = self.wires.bytes_sent
        return self.control_bytes + sum(sent[(*ends, KIND)] for ends in self.demand.costs)

    # --- loads ---

    def _publish_second(self, flow: Flow) -> None:
        self.agenda.at(self.now_ms + SECOND_MS, self._publish_second, flow)
        rate = self.demand.flows[flow][1]
        if self._noise:
            if flow not in self._factors or self.now_ms % self._noise_ms < SECOND_MS:
                self._factors[flow] = max(0.0, self._dice.gauss(1.0, self._noise))
            rate *= self._factors[flow]
        self.publish_bytes(*flow, int(rate / 8))

    def publish_bytes(self, id: BrokerId, topic: str, size: int) -> None:
        """A client publishes so many bytes."""
        agent = self.agents.get(id)
        if agent is not None and agent.subscribed and not agent.pauses:
            payload = self.published.to_bytes(NUMBER_BYTES, "big").ljust(size, b"\0")
            self.data_paths[id].read(PublishPacket(topic, payload).write())

    def _delivered(self, agent: Agent, packet: PublishPacket) -> None:
        """Loads are not followed one by one."""

    def _measure(self) -> None:
        """Once a second meters take their samples."""
        self.agenda.at(self.now_ms + SECOND_MS, self._measure)
        for id, agent in sorted(self.agents.items()):
            self.data_paths[id].tend()
            now_ms = self.now_of(agent).ms
            sent = {to: self.wires.bytes_sent[id, to, "data"] for to in sorted(agent.reach)}
            samples = {to: LinkSample(now_ms, left, 0) for to, left in sent.items()}
            self._meters.setdefault(id, LinkMeter()).take(samples)
            for to, left in sent.items():
                kept = self._left.setdefault((id, to), deque(maxlen=SAMPLES_KEPT + 1))
                kept.append(left)

    def _links_of(self, agent: Agent) -> tuple[LinkLoad, ...]:
        up = agent.node.links.up
        return tuple(
            LinkLoad(
                neighbour=to,
                cost=up[to].cost,
                rate=self._meters[agent.id].rate(to) or 0.0,
                capacity=CAPACITY,
            )
            for to in sorted(agent.reach)
            if to in up
        )

    # --- who steers ---

    def _sample(self, id: BrokerId) -> None:
        self.agenda.at(self.now_ms + SAMPLE_MS, self._sample, id)
        agent = self.agents.get(id)
        if agent is not None and id in self._meters:
            self.sample(agent, self._links_of(agent), self.data_paths[id].told_flows())

    def _turn(self, id: BrokerId) -> None:
        self.agenda.at(self.now_ms + TURN_MS, self._turn, id)
        if (agent := self.agents.get(id)) is not None:
            self.moves += [(self.seconds, (id, move.filters[0])) for move in self.turn(agent)]

    def _decide(self) -> None:
        self.agenda.at(self.now_ms + LOAD_EVERY_MS, self._decide)
        for id, agent in sorted(self.agents.items()):
            if id in self._meters:
                load = Load(
                    STEERING_VERSION, FEDERATION, id, agent.node.links.epoch, self.now_ms,
                    self._links_of(agent), self.data_paths[id].told_flows(),
                )  # fmt: skip
                self.control_bytes += len(json_codec.encode(load))
                self.decider.on_load(load, now_ms=self.now_ms)
        decision = self.decider.decide(now_ms=self.now_ms)
        for move in decision.moves:
            self.moves.append((self.seconds, (move.origin, move.filters[0])))
        for id, agent in sorted(self.agents.items()):
            plan = self.follow(agent, [tree for tree in decision.trees if passes(tree, id)])
            if plan is not None:
                self.control_bytes += len(json_codec.encode(plan))


def _plan(demand: Demand) -> WorldPlan:
    links = tuple(
        LinkPlan(a, b, cost=Cost(cost), configured=(a, b))
        for (a, b), cost in sorted(demand.costs.items())
        if a < b
    )
    wanted: dict[BrokerId, set[str]] = {}
    for (_, topic), (to, _) in demand.flows.items():
        for each in to:
            wanted.setdefault(each, set()).add(topic)
    return WorldPlan(
        ids=tuple(demand.brokers),
        links=links,
        filters={id: frozenset(topics) for id, topics in wanted.items()},
        parameters=Parameters(solicit_timeout_ms=Millis(500)),
        shortest=frozenset(demand.brokers),
    )

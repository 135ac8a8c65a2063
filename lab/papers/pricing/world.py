"""A world of pricing brokers: announcements, joins and verdicts that take time and get lost.

Deterministic: one agenda, one seeded generator. In each round some topics have their turn: their
publishers number them anew, the flood takes what the links' delays make it take, then brokers
choose and ask. At the end of each round the routing that stands is recorded.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np

from federator.planner.flow.instance import BoolArray, Instance
from federator.planner.flow.outcome import Outcome, outcome
from federator.planner.flow.routing import Routing, account, from_arcs, prune
from federator.planner.flow.watch import UNWATCHED, Progress, Watch
from lab.frame.settings import setting
from lab.papers.pricing.admission import admit
from lab.papers.pricing.broker import Broker, InLink
from lab.papers.pricing.channels import PRESENT_MAX, Channel
from lab.papers.pricing.messages import Announcement, Joins, Message
from lab.sim.agenda import Agenda

ROUND_MS = 5_000  # as core announcements, whose interval this is
GAP_MS = 20  # changes of so long are told together
HINT_MS = 30  # the same for spare ways, which nobody waits for
CHOOSE_MS = 900  # after the first word of a new number
AGAIN_MS = 80
"""After which everything is said a second time, as it stands then: most losses do no harm."""
SPREAD_MS = 4_400  # of a round, over which the numbers of different topics are spread
GOLDEN = 0.6180339887
"""Multiples of it, modulo one, lie evenly: topics choose one after the other, not together."""
ASK_MS = 4_800  # into a round, when everybody repeats what it needs
SLICE_MS = 10  # of simulated time between two looks at the watch
BROKERS_SHARE = 0.9  # of a time limit; the rest is for what links let through in the end
CALLS_MAX = 10**9
TURNS = 6  # rounds from one turn of a topic to its next


@dataclass(frozen=True, slots=True)
class Conditions:
    """What brokers have to live with."""

    rounds: int = setting(100, "", 20, 1_000)  # announcement rounds
    delay_ms: tuple[int, int] = (5, 40)  # least and most delay of a message
    loss: float = 0.02  # share of messages that are lost
    noise: float = setting(0.0, "", 0, 0.5)  # share by which a measured rate is off, at most


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """What stood at the end of a round."""

    cost: float  # of the routing, as F1 counts; penalties included
    unmet: int  # requests not served
    moves: int  # parents changed in the round
    overload: float  # largest share by which a channel's true load exceeds its capacity


def solve(
    instance: Instance,
    *,
    seed: int = 0,
    conditions: Conditions | None = None,
    watch: Watch = UNWATCHED,
) -> Outcome:
    """The routing that brokers agree on."""
    world = World(instance, conditions or Conditions(), seed)
    stopped = world.run(replace(watch, time_limit_s=BROKERS_SHARE * watch.time_limit_s))
    return outcome(
        instance,
        admit(instance, world.routing(), watch),
        method="distributed",
        stopped=stopped,
        iterations=len(world.records),
    )


class World:
    """All brokers, the messages between them, and a clock."""

    def __init__(self, instance: Instance, conditions: Conditions, seed: int) -> None:
        self.instance = instance
        self.conditions = conditions
        self.rng = random.Random(seed)
        self.agenda = Agenda(calls_max=CALLS_MAX)
        self.records: list[RoundRecord] = []
        self.messages = 0
        self.lost = 0
        self._unsent: dict[int, set[int]] = {}
        self._told_ms: dict[tuple[int, int], int] = {}
        self._unhinted: dict[tuple[int, int], set[int]] = {}
        self._latest: dict[tuple[int, int], int] = {}
        self._choosing: set[tuple[int, int]] = set()
        self.brokers = _brokers(instance)
        self._usable = _usable(instance)

    def run(self, watch: Watch) -> str:
        rounds, lived = self.conditions.rounds, len(self.records)
        for round_ in range(lived, lived + rounds):
            if watch.over():
                return "stopped"
            self._begin(round_)
            for slice_ms in range(0, ROUND_MS, SLICE_MS):
                self.agenda.run_until(round_ * ROUND_MS + slice_ms + SLICE_MS)
                if watch.over():
                    return "stopped"
            self.records.append(self._record())
            watch.report(Progress((round_ + 1 - lived) / rounds, self.records[-1].cost))
        return "done"

    def change(self, instance: Instance) -> None:
        """Other rates and other subscribers from now on; graph and publishers are the same."""
        self.instance, self._usable = instance, _usable(instance)
        wanted: list[set[int]] = [set() for _ in self.brokers]
        for topic, node in zip(instance.request_topic.tolist(), instance.request_node, strict=True):
            wanted[node].add(topic)
        for broker in self.brokers:
            broker.subscribe(wanted[broker.id])

    def routing(self) -> Routing:
        arcs: list[list[int]] = [[] for _ in range(self.instance.topics)]
        for broker in self.brokers:
            for topic, state in broker.topics.items():
                if state.parent is None or topic in broker.published:
                    continue
                arc = broker.in_links[state.parent].arc
                if (broker.needs(topic) or not state.dear) and self._usable[topic, arc]:
                    arcs[topic].append(arc)
        return prune(self.instance, from_arcs(arcs))

    def _record(self) -> RoundRecord:
        instance, routing = self.instance, self.routing()
        load = np.zeros(len(instance.capacity))
        for topic, arcs in enumerate(routing.arcs):
            load[instance.channel[arcs]] += instance.rate[topic]
        counted = account(instance, routing, overloads=True)
        moves = sum(broker.moves for broker in self.brokers)
        before = sum(record.moves for record in self.records)
        overload = float((load / instance.capacity).max()) - 1 if len(load) else 0.0
        unmet = int((~counted.met).sum())
        return RoundRecord(counted.cost, unmet, moves - before, max(0.0, overload))

    def _begin(self, round_: int) -> None:
        noise = self.conditions.noise
        for broker in self.brokers:
            for topic in sorted(broker.published):
                off = self.rng.uniform(-noise, noise) if noise else 0.0
                broker.measure(topic, float(self.instance.rate[topic]) * (1 + off))
        for broker in self.brokers:
            broker.begin_round(round_)
            for topic in sorted(broker.published):
                turn = round_ == 0 or (topic + round_) % TURNS == 0
                if not broker.due(topic, turn=turn):
                    continue
                slot = int(SPREAD_MS * (topic * GOLDEN % 1.0))
                self._later(slot, self._number, broker, topic)
            self._later(ASK_MS + self.rng.randrange(50), self._repeat, broker)

    def _number(self, broker: Broker, topic: int) -> None:
        broker.number(topic)
        self._tell(broker, {topic})

    def _tell(self, broker: Broker, topics: set[int]) -> None:
        """Pass ``topics`` on soon, with whatever else changes until then."""
        if not topics:
            return
        if broker.id not in self._unsent:
            self._unsent[broker.id] = set()
            self._later(GAP_MS, self._flush, broker)
        self._unsent[broker.id] |= topics

    def _hint(self, broker: Broker, neighbour: int, topics: set[int]) -> None:
        key = (broker.id, neighbour)
        if key not in self._unhinted:
            self._unhinted[key] = set()
            self._later(HINT_MS, self._flush_hints, broker, neighbour)
        self._unhinted[key] |= topics

    def _flush_hints(self, broker: Broker, neighbour: int) -> None:
        topics = self._unhinted.pop((broker.id, neighbour))
        self._send(broker.id, neighbour, broker.hints(neighbour, topics))

    def _flush(self, broker: Broker) -> None:
        topics = self._unsent.pop(broker.id)
        for topic in topics:
            self._told_ms[broker.id, topic] = self.now_ms
        self._tell_all(broker, topics)
        self._later(AGAIN_MS, self._tell_again, broker, topics, self.now_ms)

    def _tell_again(self, broker: Broker, topics: set[int], told_ms: int) -> None:
        """Unless told anew since, or soon."""
        unsent = self._unsent.get(broker.id, set())
        last = {topic for topic in topics if self._told_ms[broker.id, topic] == told_ms}
        if last - unsent:
            self._tell_all(broker, last - unsent)

    def _tell_all(self, broker: Broker, topics: set[int]) -> None:
        for neighbour, announcement in broker.announcements(topics).items():
            self._send(broker.id, neighbour, announcement)

    def _repeat(self, broker: Broker) -> None:
        self._ask({neighbour: broker.joins(neighbour) for neighbour in sorted(broker.in_links)})

    def _ask(self, joins: dict[int, Joins]) -> None:
        for neighbour, message in joins.items():
            self._send(message.sender, neighbour, message)
            self._later(AGAIN_MS, self._ask_again, message.sender, neighbour)

    def _ask_again(self, sender: int, neighbour: int) -> None:
        self._send(sender, neighbour, self.brokers[sender].joins(neighbour))

    def _send(self, sender: int, receiver: int, message: Message) -> None:
        """Lost, or there after a while; a link keeps the order of what goes over it."""
        self.messages += 1
        if self.rng.random() < self.conditions.loss:
            self.lost += 1
            return
        due = self.now_ms + self.rng.randint(*self.conditions.delay_ms)
        due = max(due, self._latest.get((sender, receiver), 0))
        self._latest[sender, receiver] = due
        self.agenda.at(due, self._deliver, self.brokers[receiver], message)

    def _deliver(self, broker: Broker, message: Message) -> None:
        match message:
            case Announcement():
                heard = broker.hear(message)
                self._tell(broker, heard.changed)
                for neighbour, topics in sorted(heard.hints.items()):
                    self._hint(broker, neighbour, topics)
                for topic in sorted(heard.new):
                    self._choose_later(broker, topic)
            case Joins():
                self._ask(broker.on_joins(message))
            case _:
                assert_never(message)

    def _choose_later(self, broker: Broker, topic: int) -> None:
        if (broker.id, topic) not in self._choosing:
            self._choosing.add((broker.id, topic))
            self._later(CHOOSE_MS, self._choose, broker, topic)

    def _choose(self, broker: Broker, topic: int) -> None:
        self._choosing.discard((broker.id, topic))
        asked, told = broker.choose(topic)
        self._ask(asked)
        if told:
            self._tell(broker, {topic})

    @property
    def now_ms(self) -> int:
        return self.agenda.now_ms

    def _later(self, after_ms: int, call: Callable[..., None], *args: object) -> None:
        self.agenda.at(self.now_ms + after_ms, call, *args)


def _usable(instance: Instance) -> BoolArray:
    """Whether each arc may carry each topic, shape (K, A)."""
    return np.stack([instance.usable(topic) for topic in range(instance.topics)])


def _brokers(instance: Instance) -> list[Broker]:
    unit = float(instance.cost.mean()) or 1.0
    owner: dict[int, int] = {}
    for arc in range(instance.arcs):
        ends = (int(instance.tail[arc]), int(instance.head[arc]))
        owner.setdefault(int(instance.channel[arc]), min(ends))
    penalty = instance.unmet_penalty / unit
    brokers = [Broker(node, penalty) for node in range(instance.nodes)]
    for channel, node in owner.items():
        capacity = float(instance.capacity[channel])
        brokers[node].owned[channel] = Channel(capacity, present_max=max(PRESENT_MAX, penalty))
    for arc in range(instance.arcs):
        tail, head = int(instance.tail[arc]), int(instance.head[arc])
        channel = int(instance.channel[arc])
        room = float(instance.capacity[channel])
        cost = float(instance.cost[arc]) / unit
        brokers[head].in_links[tail] = InLink(arc, cost, channel, room)
        brokers[tail].out_arcs[head] = (arc, channel)
    for topic in range(instance.topics):
        brokers[instance.publisher[topic]].published.add(topic)
    for topic, node in zip(instance.request_topic.tolist(), instance.request_node, strict=True):
        brokers[node].subscribed.add(topic)
    return brokers

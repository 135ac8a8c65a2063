"""Tells the story of a large world: a cold start, rest, publications, deaths of hubs, healing.

What a client publishes at QoS 1 must arrive once at each sampled client that wants it, also while
hubs die; the ledger excuses what died with a broker, and counts it (docs/guarantees.md). A leaf has
one hub: while that is dead it waits, and so does what is for it.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from federator.protocol.types import BrokerId
from lab.sim.faults import schedule
from lab.sim.large.checks import SAMPLE, SampledInvariants, astray, complaints
from lab.sim.large.plan import START_MS, TOPIC_DOWN, TOPICS_UP, LargePlan
from lab.sim.messages.real_clients import RealClients
from lab.sim.plan import Port
from lab.sim.story import Fault, FaultKind, Kind, Story
from lab.sim.tale import Tale, demand, stand, tell
from lab.sim.world import World

CALLS_MAX = 1_000_000_000
CHECK_EVERY_MS = 500
CONVERGES_MS = 60_000
"""After the last start, or return of a hub."""

REST_MS = 10_000
PUBLICATIONS = 200
PUBLISHING_MS = 4_000
DRAIN_MS = 3_000

TOGETHER_MAX = 3
BLOW_EVERY_MS, BLOW_IN_AREAS_EVERY_MS = 2_000, 4_000
"""In a mesh of ten hubs the one way that is left has to be asked for, and is found within 3 s."""

AWAY_MS = (1_000, 15_000)
PUBLISH_EVERY_MS = 100

Say = Callable[[str], None]


@dataclass(slots=True)
class Traffic:
    """Control messages and their bytes, per second: of one leaf's link both ways, of one hub."""

    leaf_messages: float = 0.0
    leaf_bytes: float = 0.0
    hub_messages: float = 0.0  # in the mesh, without what it says to its leaves
    hub_bytes: float = 0.0


@dataclass(slots=True)
class Outcome:
    """What one run found."""

    hubs: int
    leaves: int  # in all
    areas: int = 0  # that see each other through a mesh above
    deaths: int = 0
    converged_ms: int = 0  # from the start; the last broker starts ``START_MS`` after the first
    healed_ms: int = 0  # from the last hub's return
    events: int = 0
    simulated_ms: int = 0
    told: int = 0  # filters that a leaf is told, at most
    held: int = 0  # filters that a hub knows, at most
    at_rest: Traffic = field(default_factory=Traffic)
    overall: Traffic = field(default_factory=Traffic)
    published: int = 0
    excused: int = 0
    violation: str = ""

    @property
    def brokers(self) -> int:
        return self.hubs + self.leaves


def run(large: LargePlan, *, deaths: int, say: Say) -> Outcome:
    """Run it to its end or to the first violation; ``say`` is told what happens."""
    outcome = Outcome(len(large.hubs), len(large.ports), len(large.borders) // 2)
    story = _Story(large, outcome, say)
    told = Story(Kind.MESSAGES, large.seed, "large", large.plan)
    violation = tell(told, Tale(story.world, CONVERGES_MS, story.acts(deaths))).violation
    if violation is not None:
        outcome.violation = f"{violation.invariant}: {violation.detail}"
    outcome.events = story.world.agenda.calls_made
    outcome.simulated_ms = story.world.now_ms
    outcome.published = len(story.clients.ledger.published)
    outcome.excused = sum(n for what, n in story.world.fired.items() if what.startswith("excused"))
    outcome.overall = story.traffic(Counter(), 0)
    return outcome


class _Story:
    def __init__(self, large: LargePlan, outcome: Outcome, say: Say) -> None:
        self._outcome, self._say = outcome, say
        self._large = large
        parts = (partial(SampledInvariants, large=large), RealClients)
        self.world = World(large.plan, seed=large.seed, parts=parts)
        self.clients = self.world.part(RealClients)
        self.world.agenda.calls_max = CALLS_MAX
        self._rng = random.Random(f"story {large.seed}")
        self._sample = self._rng.sample(large.ports, min(SAMPLE, len(large.ports)))
        self._started_ms: dict[BrokerId, int] = {}

    def acts(self, deaths: int) -> Iterator[int]:
        world, outcome = self.world, self._outcome
        world.run_until(START_MS)
        outcome.converged_ms = self._converge("converges")
        yield outcome.converged_ms
        self._count_filters()
        self._say(f"stands after {outcome.converged_ms / 1_000:.1f} s")
        before, since_ms = self._said(), world.now_ms
        world.run_until(since_ms + REST_MS)
        demand("stays", self._complaints())
        outcome.at_rest = self.traffic(before, since_ms)
        self._promise()
        self._publish(PUBLICATIONS, PUBLISHING_MS)
        world.run_until(world.now_ms + PUBLISHING_MS + DRAIN_MS)
        self._demand_all("arrives")
        self._say(f"{PUBLICATIONS} publications arrived, once each")
        if deaths:
            self._die(deaths)

    def _die(self, deaths: int) -> None:
        """Kill one to three hubs at once, again and again, while clients publish; then heal."""
        world, outcome = self.world, self._outcome
        every_ms = BLOW_IN_AREAS_EVERY_MS if self._large.borders else BLOW_EVERY_MS
        back_ms: int = world.now_ms
        while outcome.deaths < deaths:
            alive = [hub for hub in self._large.hubs if hub in world.agents]
            count = min(self._rng.randint(1, TOGETHER_MAX), deaths - outcome.deaths, len(alive))
            for hub in self._rng.sample(alive, count):
                until_ms = world.now_ms + self._rng.randint(*AWAY_MS)
                schedule(world, [Fault(FaultKind.HOST_CRASH, world.now_ms, until_ms, node=hub)])
                self._started_ms[hub] = until_ms
                back_ms = max(back_ms, until_ms)
            outcome.deaths += count
            self._publish(every_ms // PUBLISH_EVERY_MS, every_ms)
            world.run_until(world.now_ms + every_ms - 1)
            demand("leads", astray(self.clients, self._large, self._started_ms, self._rng))
            self._say(f"{outcome.deaths} deaths")
        world.run_until(back_ms)
        outcome.healed_ms = self._converge("heals") - back_ms
        self._say(f"healed {outcome.healed_ms / 1_000:.1f} s after the last return")
        self._demand_all("owed")
        self._promise()
        self.clients.ledger.calm = True
        self._publish(PUBLICATIONS, PUBLISHING_MS)
        world.run_until(world.now_ms + PUBLISHING_MS + DRAIN_MS)
        self._demand_all("arrives again")
        self._say(f"{PUBLICATIONS} publications arrived again, once each")

    # --- what must become true ---

    def _converge(self, invariant: str) -> int:
        """Run until nothing is missing; when that was."""
        wrong = {invariant: lambda: chain(self._complaints(), self._outstanding())}
        until_ms = self.world.now_ms + CONVERGES_MS
        return stand(self.world, wrong, until_ms=until_ms, every_ms=CHECK_EVERY_MS)

    def _complaints(self) -> Iterator[str]:
        return complaints(self.clients, self._large, self._sample)

    def _outstanding(self) -> list[str]:
        return self.clients.ledger.outstanding(lambda _one, _other: True)

    def _demand_all(self, invariant: str) -> None:
        demand(invariant, self._outstanding())

    def _promise(self) -> None:
        """Sampled sites and all control rooms are promised what they want from now on."""
        sampled = {port.leaf for port in self._sample} | self.clients.hubs.switches.keys()
        for id, subscriber in self.clients.subscribers.items():
            if subscriber.plan.broker in sampled:
                demand("subscribed", [] if subscriber.subscribed else [f"{id!r} is not"])
                self.clients.ledger.promise(id, subscriber.filters)

    # --- what clients do ---

    def _publish(self, count: int, during_ms: int) -> None:
        """So many publications at QoS 1 from anywhere: to one site mostly, or to all rooms."""
        world, rng = self.world, self._rng
        for at in range(count):
            source: Port = rng.choice(self._large.ports)
            broker = source.leaf
            if rng.random() < 0.25:
                topic = f"{self._large.sites[broker]}/{rng.choice(TOPICS_UP)}"
            else:
                topic = f"{self._large.sites[rng.choice(self._sample).leaf]}/{TOPIC_DOWN}"
                broker = rng.choice((broker, source.hub))
            when_ms = world.now_ms + at * during_ms // count
            world.agenda.at(when_ms, self.clients.client_publishes, f"p-{broker}", broker, topic, 1)

    # --- figures ---

    def traffic(self, before: Counter[str], since_ms: int) -> Traffic:
        """What was said since ``since_ms``, when the counts were ``before``."""
        said = self._said()
        said.subtract(before)
        seconds = max(1, self.world.now_ms - since_ms) / 1_000
        leaves, hubs = len(self._large.ports) * seconds, len(self._large.hubs) * seconds
        return Traffic(
            leaf_messages=said["leaf"] / leaves,
            leaf_bytes=said["leaf bytes"] / leaves,
            hub_messages=said["hub"] / hubs,
            hub_bytes=said["hub bytes"] / hubs,
        )

    def _said(self) -> Counter[str]:
        """Control messages and their bytes: of links of leaves, and of hubs in their meshes."""
        borders = {port.id for port in self._large.borders}
        roles = dict.fromkeys(borders, "border") | dict.fromkeys(self._large.hubs, "hub")
        said = Counter[str]()
        for (owner, _, kind), count in self.world.wires.messages_sent.items():
            said[roles.get(owner, "leaf")] += count if kind != "data" else 0
        for (owner, _, kind), size in self.world.wires.bytes_sent.items():
            said[f"{roles.get(owner, 'leaf')} bytes"] += size if kind != "data" else 0
        return said

    def _count_filters(self) -> None:
        world = self.world
        self._outcome.told = max(len(world.filters[port.id]) for port in self._large.ports)
        self._outcome.held = max(
            len(world.agents[hub].node.topic_routing.states) for hub in self._large.hubs
        )

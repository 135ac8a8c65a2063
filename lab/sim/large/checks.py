"""What must hold in a large world: some of it everywhere and always, some of it by samples.

After every event: hubs' routes (numbers grow, cost falls towards the core, none to who never was),
frames (no copy twice over a link, none in circles), and what is delivered anywhere (as published,
once, only where asked for, not back home). Of leaves' announcements nothing is looked at: each has
one neighbour.

Once it stands: every hub knows every hub of its mesh and all that it asks for, and meshes are
linked; every leaf has its link, its hub
asks the mesh for all that it wants, and it knows all that its port was told. For ``SAMPLE`` leaves
that is held against what every other broker wants, filter by filter.
"""

import random
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from federator.protocol.effects import Effect, Send
from federator.protocol.events import Event, LocalFiltersChanged, Received
from federator.protocol.filters import contains
from federator.protocol.messages.control import CoreAnn
from federator.protocol.types import BrokerId
from lab.sim.invariants import ANNOUNCEMENT_SENDS_PER_LINK_MAX, Invariants
from lab.sim.large.world import LargeWorld
from lab.sim.messages.hubs import Port
from lab.sim.network import Agent
from lab.sim.topologies import connected_parts
from lab.sim.world import World

SAMPLE = 100
WALKS = 50
STEADY_MS = 12_000
"""By then a hub that came back has its links and routes again."""


class SampledInvariants(Invariants):
    """The checks that are made after every event."""

    def attach(self, world: World) -> None:
        """Watch ``world``, a large one."""
        super().attach(world)
        assert isinstance(world, LargeWorld)
        self._hubs = frozenset(world.large.hubs)
        self._bound = ANNOUNCEMENT_SENDS_PER_LINK_MAX * len(world.large.mesh)

    def started(self, agent: Agent) -> None:
        """Forget what the incarnation before knew."""
        if agent.id in self._hubs:
            super().started(agent)
        else:
            self._known_filters[agent.id] = frozenset()

    def stopped(self, agent: Agent) -> None:
        """An agent runs no more."""
        if agent.id in self._hubs:
            super().stopped(agent)

    def link_changed(self, agent: Agent, target: BrokerId) -> None:
        """Announcements under way may need repeats."""
        if agent.id in self._hubs:
            super().link_changed(agent, target)

    def sent(self, agent: Agent, target: BrokerId, send: Send) -> None:
        """Count announcements between hubs."""
        if agent.id in self._hubs:
            super().sent(agent, target, send)

    def handled(self, agent: Agent, event: Event, effects: Sequence[Effect]) -> None:
        """Look at the route that the event can have changed."""
        if isinstance(event, LocalFiltersChanged):
            super().handled(agent, event, ())
        elif agent.id not in self._hubs or not isinstance(event, Received):
            return
        elif isinstance(event.message, CoreAnn):
            self._check_route(agent, event.message.core)


def sample_of(world: LargeWorld, rng: random.Random) -> list[Port]:
    """The leaves that are looked at closely."""
    ports = world.large.ports
    return rng.sample(ports, min(SAMPLE, len(ports)))


def complaints(world: LargeWorld, sample: Sequence[Port]) -> Iterator[str]:
    """Everything that is not as it must become while all brokers run."""
    for a, b in world.large.mesh:
        for here, there in ((a, b), (b, a)):
            if here not in world.agents or there not in world.agents[here].reach:
                yield f"{here} does not reach {there}"
    for port in world.large.ports:
        yield from _leaf_wrong(world, port)
    for port in world.large.borders:
        if port.id not in world.agents or port.leaf not in world.agents[port.id].reach:
            yield f"{port.hub} has no link with the mesh beyond {port.leaf}"
    for mesh in world.large.meshes:
        for hub in mesh:
            yield from _hub_unknown(world, hub, mesh)
    wanted = world.wanted_by_clients
    for port in sample:
        others = {f for broker, filters in wanted.items() if broker != port.leaf for f in filters}
        for missing in sorted(_uncovered(others, world.filters[port.id])):
            yield f"leaf {port.leaf} is not told that somebody wants {missing!r}"


def _hub_unknown(world: LargeWorld, hub: BrokerId, mesh: Sequence[BrokerId]) -> Iterator[str]:
    """Who in its ``mesh`` does not know all that ``hub`` asks for."""
    said = world.agents[hub].node.announcements.own.filters
    if world.filters[hub] != world.switches[hub].mesh.filters:
        yield f"{hub} does not ask for what its switch says"
    if len(said) != len(world.filters[hub]):
        yield f"{hub} announces {len(said)} filters of {len(world.filters[hub])}"
    for other in mesh:
        if other != hub:
            route = world.agents[other].node.announcements.routes.get(hub)
            if route is None or not route.parents:
                yield f"{other} knows no way to {hub}"
            elif route.announced.filters.filters != said.filters:
                yield f"{other} does not know what {hub} asks for"


def _leaf_wrong(world: LargeWorld, port: Port) -> Iterator[str]:
    leaf, beside = world.agents.get(port.leaf), world.agents.get(port.id)
    if leaf is None or beside is None:
        yield f"leaf {port.leaf} or its port does not run"
        return
    if port.id not in leaf.reach or port.leaf not in beside.reach:
        yield f"leaf {port.leaf} has no link with hub {port.hub}"
        return
    wanted = world.wanted_by_clients[port.leaf]
    heard = beside.node.topic_routing.states
    if not all(f in heard and heard[f].brokers for f in wanted):
        yield f"hub {port.hub} does not know what leaf {port.leaf} wants"
    elif missing := _uncovered(wanted, world.switches[port.hub].mesh.filters):
        yield f"hub {port.hub} does not ask for {sorted(missing)}"
    told = {f for f, state in leaf.node.topic_routing.states.items() if state.brokers}
    if told != world.filters[port.id]:
        yield f"leaf {port.leaf} is told {len(told)} filters, not {len(world.filters[port.id])}"


def _uncovered(wanted: AbstractSet[str], cover: AbstractSet[str]) -> set[str]:
    """What of ``wanted`` no filter of ``cover`` contains."""
    wide = [filter for filter in cover if "+" in filter or "#" in filter]
    short = sorted(wide, key=len)  # the widest are found soon
    return {f for f in wanted - cover if not any(contains(each, f) for each in short)}


def astray(world: LargeWorld, started_ms: dict[BrokerId, int], rng: random.Random) -> Iterator[str]:
    """While some hubs are dead: sampled ways between the others that do not lead there."""
    now_ms = world.now_ms
    steady = [
        hub
        for hub in world.large.hubs
        if hub in world.agents and now_ms - started_ms.get(hub, 0) >= STEADY_MS
    ]
    links = [(a, b) for a, b in world.large.mesh if a in steady and b in steady]
    parts = [sorted(part) for part in connected_parts(steady, links) if len(part) > 1]
    for _ in range(WALKS if parts else 0):
        start, end = rng.sample(rng.choice(parts), 2)
        if not _leads(world, start, end):
            yield f"the next hops from {start} do not lead to {end}"
    for port in rng.sample(world.large.ports, min(SAMPLE, len(world.large.ports))):
        if port.hub in steady:
            yield from _leaf_wrong(world, port)


def _leads(world: LargeWorld, here: BrokerId, end: BrokerId) -> bool:
    for _ in world.large.hubs:
        if here == end:
            return True
        following = world.agents[here].data.forwarder.next_hop_to(end)
        if following is None or following not in world.agents:
            return False
        here = following
    return False

"""What must hold in a large world: some of it everywhere and always, some of it by samples.

After every event: hubs' routes (numbers grow, cost falls towards the core, none to who never was),
frames (no copy twice over a link, none in circles), and what is delivered anywhere (as published,
once, only where asked for, not back home). Of leaves' announcements nothing is looked at: each has
one neighbour.

Once it stands: all that must become true in any world, where the hubs of a mesh are a part, and so
is a leaf with its port; every hub asks its mesh for all that its leaves want. For ``SAMPLE`` leaves
what they are told is held against what every other broker wants, filter by filter.
"""

import random
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from federator.protocol.effects import Effect
from federator.protocol.events import Event, LocalFiltersChanged, Received
from federator.protocol.filters import contains
from federator.protocol.messages.control import CoreAnn
from federator.protocol.types import BrokerId
from lab.sim import convergence
from lab.sim.invariants import ANNOUNCEMENT_SENDS_PER_LINK_MAX, Invariants
from lab.sim.large.plan import LargePlan
from lab.sim.messages.real_clients import RealClients
from lab.sim.network import Agent
from lab.sim.plan import Port
from lab.sim.world import World

SAMPLE = 100
WALKS = 50
STEADY_MS = 12_000
"""By then a hub that came back has its links and routes again."""


class SampledInvariants(Invariants):
    """The checks that are made after every event."""

    def __init__(self, world: World, large: LargePlan) -> None:
        super().__init__(world, among=frozenset(large.hubs))
        self._bound = ANNOUNCEMENT_SENDS_PER_LINK_MAX * len(large.mesh)

    def handled(self, agent: Agent, event: Event, effects: Sequence[Effect]) -> None:
        """Look at the route that the event can have changed."""
        if isinstance(event, LocalFiltersChanged):
            super().handled(agent, event, ())
        elif not self._follows(agent) or not isinstance(event, Received):
            return
        elif isinstance(event.message, CoreAnn):
            self._check_route(agent, event.message.core)


def complaints(clients: RealClients, large: LargePlan, sample: Sequence[Port]) -> Iterator[str]:
    """Everything that is not as it must become while all brokers run."""
    world = clients.world
    yield from (f"{id} does not run" for id in world.plan.ids if id not in world.agents)
    yield from convergence.complaints(world)
    for hub, switch in clients.hubs.switches.items():
        if world.filters[hub] != switch.mesh.filters:
            yield f"{hub} does not ask for what its switch says"
    for port in large.ports:
        yield from _unasked(clients, port)
    wanted = clients.wanted_by_clients
    for port in sample:
        others = {f for broker, filters in wanted.items() if broker != port.leaf for f in filters}
        for missing in sorted(_uncovered(others, world.filters[port.id])):
            yield f"leaf {port.leaf} is not told that somebody wants {missing!r}"


def _unasked(clients: RealClients, port: Port) -> Iterator[str]:
    """What a leaf wants and its hub does not ask its mesh for."""
    wanted = clients.wanted_by_clients[port.leaf]
    if missing := _uncovered(wanted, clients.hubs.switches[port.hub].mesh.filters):
        yield f"hub {port.hub} does not ask for {sorted(missing)}"


def _uncovered(wanted: AbstractSet[str], cover: AbstractSet[str]) -> set[str]:
    """What of ``wanted`` no filter of ``cover`` contains."""
    wide = [filter for filter in cover if "+" in filter or "#" in filter]
    short = sorted(wide, key=len)  # the widest are found soon
    return {f for f in wanted - cover if not any(contains(each, f) for each in short)}


def astray(
    clients: RealClients, large: LargePlan, started_ms: dict[BrokerId, int], rng: random.Random
) -> Iterator[str]:
    """While some hubs are dead: sampled ways between the others that do not lead there."""
    world, now_ms = clients.world, clients.world.now_ms
    steady = [
        hub
        for hub in large.hubs
        if hub in world.agents and now_ms - started_ms.get(hub, 0) >= STEADY_MS
    ]
    parts = [sorted(part.ids) for part in convergence.parts_of(world, steady)]
    parts = [part for part in parts if len(part) > 1]
    for _ in range(WALKS if parts else 0):
        start, end = rng.sample(rng.choice(parts), 2)
        if not convergence.leads(world.agents, start, end):
            yield f"the next hops from {start} do not lead to {end}"
    for port in rng.sample(large.ports, min(SAMPLE, len(large.ports))):
        if port.hub in steady:
            yield from convergence.complaints(world, among=(port.leaf, port.id))
            yield from _unasked(clients, port)

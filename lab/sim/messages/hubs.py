"""Hubs and leaves with clients: several agents beside one broker, which is the switch between them.

Each leaf and the port it hangs at are a federation of two, so in the plan they are a part of their
own; ports have ids here, by which the world knows them, that no other broker has. A hub's agent and
its ports are one process: they stop, pause and start together.

Source: docs/hubs.md.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from federator.protocol.filters import CoverChange
from federator.protocol.leaves.switch import Asked, LeafSide, Switch, Telling
from federator.protocol.types import BrokerId, Epoch, Millis
from lab.sim.data import DataPath
from lab.sim.disks import KEEP_S
from lab.sim.messages.sessions import control_client_id, data_client_id
from lab.sim.messages.world import DOOMED_MS, MessagePlan, MessageWorld
from lab.sim.network import Agent
from lab.sim.plan import Link
from lab.sim.watcher import Watcher

FIRST_LEAF, FIRST_PORT = 10, 1_000
HUBS_MAX = LEAVES_MAX = 3
FILTERS_MAX = (3, 4, 1_000)
"""Room for what each side is told: hardly any, or enough."""


@dataclass(frozen=True, slots=True)
class Port:
    """Where a leaf hangs: an agent beside its hub's broker."""

    id: BrokerId
    hub: BrokerId
    leaf: BrokerId


def draw_ports(rng: random.Random) -> tuple[list[BrokerId], list[Link], tuple[Port, ...]]:
    """Hubs, all linked with the first, and the ports of their leaves; hubs and leaves; links."""
    hubs = [BrokerId(id) for id in range(1, 1 + rng.randint(1, HUBS_MAX))]
    links: list[Link] = [(hubs[0], other) for other in hubs[1:]]
    ports: list[Port] = []
    for hub in hubs:
        for _ in range(rng.randint(1 if hub == 1 else 0, LEAVES_MAX)):
            number = len(ports)
            port = Port(BrokerId(FIRST_PORT + number), hub, BrokerId(FIRST_LEAF + number))
            ports.append(port)
            links.append((port.leaf, port.id))
    return [*hubs, *(port.leaf for port in ports)], links, tuple(ports)


class HubWorld(MessageWorld):
    """Members, leaves, and the ports between them."""

    def __init__(
        self,
        plan: MessagePlan,
        ports: Sequence[Port],
        *,
        filters_max: int,
        seed: int,
        watcher: Watcher | None = None,
    ) -> None:
        self.ports = {port.id: port for port in ports}
        self._filters_max = filters_max
        self._hubs = sorted({port.hub for port in ports})
        self._ports_of: dict[BrokerId, list[BrokerId]] = {hub: [] for hub in self._hubs}
        for port in ports:
            self._ports_of[port.hub].append(port.id)
        self.switches = {hub: self._new_switch(hub) for hub in self._hubs}
        super().__init__(plan, seed=seed, watcher=watcher)
        self.ledger.relays = frozenset((*self._hubs, *self.ports))
        for port in ports:
            self.local[port.id] = self.local[port.hub]

    def ports_of(self, hub: BrokerId) -> list[BrokerId]:
        """The ports at which the leaves of ``hub`` hang."""
        return self._ports_of.get(hub, [])

    # --- one process ---

    def stop_agent(self, id: BrokerId, *, graceful: bool = False) -> None:
        """Stop a hub's agent with its ports."""
        super().stop_agent(id, graceful=graceful)
        for port in self.ports_of(id):
            super().stop_agent(port, graceful=graceful)
        if id in self.switches:
            before, self.switches[id] = self.switches[id], self._new_switch(id)
            leaves = {leaf: asked.filters for leaf, asked in before.leaves.items()}
            self.switches[id].recall(before.mesh.filters, leaves, self._ms)

    def start_agent(self, id: BrokerId) -> None:
        """Start a hub's agent with its ports."""
        super().start_agent(id)
        for port in self.ports_of(id):
            super().start_agent(port)

    def pause_agent(self, id: BrokerId) -> None:
        """Stop the process of a hub as SIGSTOP does."""
        super().pause_agent(id)
        for port in self.ports_of(id):
            super().pause_agent(port)

    def resume_agent(self, id: BrokerId, life: int) -> None:
        """Let it go on."""
        super().resume_agent(id, life)
        for port in self.ports_of(id):
            super().resume_agent(port, self.lives[port])

    def acknowledging(self, agent: Agent, number: int) -> None:
        """Beside a hub's broker each agent logs what its own side wants; others log the rest."""
        topic = self.ledger.published[number].topic
        relays = agent.id in self.ledger.relays
        if not relays or agent.data.forwarder.route_topic(topic) is not None:
            super().acknowledging(agent, number)

    # --- who is told what ---

    def interest_changed(
        self, agent: Agent, added: frozenset[str], removed: frozenset[str]
    ) -> None:
        """What clients want: a hub's agent tells all sides, ports hear no log."""
        if agent.id in self.ports:
            return
        switch = self.switches.get(agent.id)
        if switch is None:
            super().interest_changed(agent, added, removed)
            return
        agent.data.forwarder.widen(self.hosts[agent.id].discovery.widened)
        telling = switch.on_clients(sorted(added), sorted(removed), self._ms)
        self._tell_sides(agent.id, switch, telling)

    def _wanted(self, id: BrokerId, added: Sequence[str], removed: Sequence[str]) -> None:
        """The mesh or a leaf wants otherwise: tell the other sides in the next turn."""
        hub = self._hub_of(id)
        self.agenda.at(
            self.now_ms, self._decide, id, self.switches[hub], CoverChange((*added,), (*removed,))
        )

    def _decide(self, id: BrokerId, switch: Switch, change: CoverChange) -> None:
        hub = self._hub_of(id)
        if self.switches[hub] is switch:
            telling = (
                switch.on_mesh(change, self._ms)
                if id == hub
                else switch.on_leaf(id, change, self._ms)
            )
            self._tell_sides(hub, switch, telling)

    def _tell_sides(self, hub: BrokerId, switch: Switch, telling: Telling) -> None:
        for told in telling:
            sides = () if told is None else ((hub, told.mesh), *told.leaves.items())
            for id, change in sides:
                if change:
                    self.fired["hub told"] += 1
                    self.set_filters(id, self._asked(id).filters)
        due_ms = switch.next_deadline_ms()
        if due_ms is not None:
            self.fired["hub filter lingers"] += 1
            self.agenda.at(max(due_ms, self.now_ms + 1), self._on_switch_time, hub, switch)

    def _on_switch_time(self, hub: BrokerId, switch: Switch) -> None:
        due_ms = switch.next_deadline_ms()
        if self.switches[hub] is switch and due_ms is not None and due_ms <= self.now_ms:
            self._tell_sides(hub, switch, switch.on_deadline(self._ms))

    # --- inside ---

    def _local_attempt(self, agent: Agent) -> None:
        super()._local_attempt(agent)
        host = self._host_of(agent)
        if agent.id in self.switches and host is not None and host.data is not None:
            for name in (control_client_id, data_client_id):
                for port in self.ports_of(agent.id):
                    session = self.local[port].sessions.get(name(port))
                    if session is not None:
                        host.hold(session.client_id, session.filters)

    def _start(self, id: BrokerId) -> None:
        was_running = id in self.agents
        super()._start(id)
        if not was_running and id in self.agents and id in self.ledger.relays:
            self.set_filters(id, self._asked(id).filters)

    def _end_doomed(self, agent: Agent) -> None:
        if self.agents.get(agent.id) is agent:
            process = self._hub_of(agent.id)
            self.stop_agent(process)
            self.agenda.at(self.now_ms + DOOMED_MS, self.start_agent, process)

    def _data_path(self, agent: Agent, epoch: Epoch) -> DataPath:
        path = super()._data_path(agent, epoch)
        if agent.id in self.ledger.relays:
            path.plane.forwarder.on_wanted = partial(self._wanted, agent.id)
        return path

    def _new_switch(self, hub: BrokerId) -> Switch:
        leaves = self.ports_of(hub)
        return Switch(leaves, filters_max=self._filters_max, linger_ms=KEEP_S * 1_000)

    def _hub_of(self, id: BrokerId) -> BrokerId:
        return self.ports[id].hub if id in self.ports else id

    def _asked(self, id: BrokerId) -> Asked | LeafSide:
        switch = self.switches[self._hub_of(id)]
        return switch.leaves[id] if id in self.ports else switch.mesh

    @property
    def _ms(self) -> Millis:
        return Millis(self.now_ms)

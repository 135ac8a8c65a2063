"""Hubs and leaves with clients: several agents beside one broker, which is the switch between them.

Each leaf and the port it hangs at are a federation of two, so in the plan they are a part of their
own; ports have ids here, by which the world knows them, that no other broker has. A hub's agent and
its ports are one process: they stop, pause and start together.

Source: docs/hubs.md.
"""

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from federator.protocol import effects as e
from federator.protocol.data.stamps import StampBook, Stamps
from federator.protocol.events import HubChosen
from federator.protocol.filters import CoverChange
from federator.protocol.leaf_serving import LeafServing
from federator.protocol.leaves.switch import Asked, LeafSide, Switch, Telling
from federator.protocol.types import BrokerId, Epoch, Millis
from lab.sim.data import DataPath
from lab.sim.disks import KEEP_S
from lab.sim.messages.ledger import LOOK_BACK_MS
from lab.sim.messages.serving import Note, Serving
from lab.sim.messages.sessions import control_client_id, data_client_id
from lab.sim.messages.world import DOOMED_MS, MessagePlan, MessageWorld
from lab.sim.network import Agent
from lab.sim.plan import Link
from lab.sim.watcher import Watcher
from lab.sim.world import World

FIRST_LEAF, FIRST_PORT = 10, 1_000
HUBS_MAX = LEAVES_MAX = 3
AREAS_MAX, HUBS_IN_AREA_MAX, LEAVES_IN_AREA_MAX = 3, 2, 1
FIRST_AREA_LEAF = 100
FILTERS_MAX = (9, 12, 3_000)
"""Room for what each side is told: hardly any, or enough."""

ROAMING_SHARE = 0.7
"""Of leaves, where there are two hubs."""


@dataclass(frozen=True, slots=True)
class Port:
    """Where a leaf hangs: an agent beside its hub's broker."""

    id: BrokerId
    hub: BrokerId
    leaf: BrokerId


def draw_ports(rng: random.Random) -> tuple[list[BrokerId], list[Link], tuple[Port, ...]]:
    """Hubs, all linked with the first or each with each, and the ports of their leaves, of which
    most have a second hub in reserve; hubs and leaves; links.
    """
    hubs = [BrokerId(id) for id in range(1, 1 + rng.randint(1, HUBS_MAX))]
    links: list[Link] = [(hubs[0], other) for other in hubs[1:]]
    if rng.random() < 0.5:
        links += itertools.combinations(hubs[1:], 2)
    ports: list[Port] = []
    leaves: list[BrokerId] = []
    for hub in hubs:
        for _ in range(rng.randint(1 if hub == 1 else 0, LEAVES_MAX)):
            leaf = BrokerId(FIRST_LEAF + len(leaves))
            leaves.append(leaf)
            places = [hub]
            if len(hubs) > 1 and rng.random() < ROAMING_SHARE:
                places.append(rng.choice([other for other in hubs if other != hub]))
            ports += [
                Port(BrokerId(FIRST_PORT + len(ports) + at), place, leaf)
                for at, place in enumerate(places)
            ]
    links += [(port.leaf, port.id) for port in ports]
    return [*hubs, *leaves], links, tuple(ports)


def draw_areas(rng: random.Random) -> tuple[list[BrokerId], list[Link], tuple[Port, ...]]:
    """Hubs of hubs, as ``draw_ports``: a mesh above, and areas, one broker of which, the border,
    hangs on a hub of that. Each of the two is a leaf to the other one.
    """
    hubs: list[BrokerId] = []
    links: list[Link] = []
    borders: list[BrokerId] = []
    for _ in range(1 + rng.randint(1, AREAS_MAX)):
        mesh = [BrokerId(len(hubs) + at) for at in range(1, 1 + rng.randint(1, HUBS_IN_AREA_MAX))]
        hubs += mesh
        borders.append(mesh[0])
        links += itertools.pairwise(mesh)
    above = hubs[: hubs.index(borders[1])]
    pairs = [(rng.choice(above), border) for border in borders[1:]]
    leaves = [hub for hub in hubs for _ in range(rng.randint(0, LEAVES_IN_AREA_MAX))]
    number = itertools.count(FIRST_PORT)
    ports: list[Port] = []
    for at, hub in enumerate(leaves):
        ports.append(Port(BrokerId(next(number)), hub, BrokerId(FIRST_AREA_LEAF + at)))
        links.append((ports[-1].leaf, ports[-1].id))
    homes = [*hubs, *(port.leaf for port in ports)]
    for hub, border in pairs:
        down, up = BrokerId(next(number)), BrokerId(next(number))
        ports += [Port(down, hub, up), Port(up, border, down)]
        links.append((up, down))
    return homes, links, tuple(ports)


def roaming_in(ports: Iterable[Port]) -> dict[BrokerId, tuple[BrokerId, ...]]:
    """Where each leaf hangs that has two hubs, the preferred place first."""
    places: dict[BrokerId, tuple[BrokerId, ...]] = {}
    for port in ports:
        places[port.leaf] = (*places.get(port.leaf, ()), port.id)
    return {leaf: at for leaf, at in places.items() if len(at) > 1}


def has_areas(ports: Sequence[Port]) -> bool:
    """Whether a hub hangs on another one."""
    ids = {port.id for port in ports}
    return any(port.leaf in ids for port in ports)


class HubWorld(MessageWorld):
    """Members, leaves, and the ports between them."""

    def __init__(
        self,
        plan: MessagePlan,
        ports: Sequence[Port],
        *,
        filters_max: int,
        return_after_ms: int,
        seed: int,
        watcher: Watcher | None = None,
    ) -> None:
        self.ports = {port.id: port for port in ports}
        self.serving: dict[BrokerId, Serving] = {}  # of the newest agents
        self._stamps: dict[BrokerId, Stamps] = {}  # of the newest agents
        self._filters_max = filters_max
        self._return_after_ms = return_after_ms
        self._books: dict[BrokerId, StampBook] = {}  # of each hub's process
        self._offsets: dict[BrokerId, int] = {}  # of each hub's process
        self._stamping: set[BrokerId] = set()  # hubs whose process knows that a leaf has another
        self._hubs = sorted({port.hub for port in ports})
        self._ports_of: dict[BrokerId, list[BrokerId]] = {hub: [] for hub in self._hubs}
        for port in ports:
            self._ports_of[port.hub].append(port.id)
        self.switches = {hub: self._new_switch(hub) for hub in self._hubs}
        super().__init__(plan, seed=seed, watcher=watcher)
        self.ledger.relays = frozenset((*self._hubs, *self.ports))
        for port in ports:
            self.local[port.id] = self.local[port.hub]
        roaming = {port.hub for port in ports if port.leaf in plan.world.roaming}
        where = {port.id: port.hub for port in ports} | {hub: hub for hub in self._hubs}
        self.ledger.stamped = {id: hub for id, hub in where.items() if hub in roaming}

    def ports_of(self, hub: BrokerId) -> list[BrokerId]:
        """The ports at which the leaves of ``hub`` hang."""
        return self._ports_of.get(hub, [])

    # --- one machine, and one process ---

    def stop_broker(self, id: BrokerId, *, orderly: bool = False) -> None:
        """Kill a broker, and with a hub's what its leaves reach there."""
        was_running = self.brokers[id].running
        super().stop_broker(id, orderly=orderly)
        for port in self.ports_of(id):
            World.stop_broker(self, port)
            if was_running:
                self._recovering.add(port)
                if port in self.hosts:
                    self.hosts[port].connection.broker_dies()

    def may_miss(self, id: BrokerId, number: int) -> list[str]:
        """What waits in a hub's broker the other hub of a leaf has, too, if the leaf can go there.

        Clients of the hub and of leaves without another one may miss it, and what these published
        all may; all may miss as well what was to pass between meshes there.
        """
        if id not in self.switches:
            return super().may_miss(id, number)
        if any(self.ports[port].leaf in self.ports for port in self.ports_of(id)):
            return list(self.subscribers)
        item = self.ledger.published[number]
        hung = {port.leaf for port in self.ports.values() if port.hub == id}
        lone = {id, *(leaf for leaf in hung if leaf not in self.plan.roaming)}
        may_miss = []
        for client, subscriber in self.subscribers.items():
            ends = {item.broker, subscriber.plan.broker}
            sure = all(self._goes_on(leaf, id, item.at_ms) for leaf in ends & hung - lone)
            if ends & lone or not sure:
                may_miss.append(client)
        return may_miss

    def may_miss_brought(self, id: BrokerId, number: int) -> list[str]:
        """As what waits in a hub's broker: from there it was to be carried on."""
        hub = self._hub_of(id)
        return (
            self.may_miss(hub, number)
            if hub in self.switches
            else super().may_miss_brought(id, number)
        )

    def _goes_on(self, leaf: BrokerId, lost: BrokerId, published_ms: int) -> bool:
        """Whether a leaf goes on at its other hub now, with what was published then."""
        agent, choice = self.agents.get(leaf), self.serving[leaf].decides.choice
        if agent is None or agent.pauses or choice is None or choice.hub is None:
            return False
        if self.ports[choice.hub].hub != lost:
            return choice.is_served
        [other] = choice.others
        hub = self.agents.get(other)
        stands = other in agent.reach and hub is not None and not hub.pauses
        return stands and published_ms > self.now_ms - LOOK_BACK_MS

    def start_broker(self, id: BrokerId) -> None:
        """End one cause of the absence of a broker, and of a hub's ports there."""
        super().start_broker(id)
        for port in self.ports_of(id):
            World.start_broker(self, port)

    def stop_agent(self, id: BrokerId, *, graceful: bool = False) -> None:
        """Stop a hub's agent with its ports."""
        super().stop_agent(id, graceful=graceful)
        for port in self.ports_of(id):
            super().stop_agent(port, graceful=graceful)
        for each in (id, *self.ports_of(id)) if self.plan.roaming else ():
            # What was published of late is not known again: it may come by another way.
            for number in self._unnoted.get(each, ()):
                self.ledger.tolerate_at(each, number)
        if id in self.switches:
            self._books.pop(id, None)
            self._stamping.discard(id)
            self._offsets.pop(id, None)
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

    # --- who serves whom ---

    def complaints(self) -> Iterator[str]:
        """Leaves that are not served as they should be, once nothing goes wrong any more."""
        for leaf, ports in self.plan.roaming.items():
            if leaf not in self.agents:
                continue
            choice = self.serving[leaf].decides.choice
            assert choice is not None
            if choice.hub is None or (self._return_after_ms and choice.hub != ports[0]):
                yield f"leaf {leaf} is served by {choice.hub}, and prefers {ports[0]}"
            for here, there in [(leaf, port) for port in ports] + [(port, leaf) for port in ports]:
                if here in self.agents and there in self.agents:
                    serves = choice.hub in (here, there)
                    way = self.agents[here].data.forwarder.next_hop_to(there)
                    if (way is not None) != serves:
                        yield f"{here} sends {there} by way of {way}, and {choice.hub} serves"

    def _perform(self, agent: Agent, effects: Iterable[e.Effect]) -> None:
        others: list[e.Effect] = []
        for effect in effects:
            if isinstance(effect, e.Pause | e.Proceed):
                if isinstance(effect, e.Proceed) and agent.id in self.plan.roaming:
                    now_us = self.now_of(agent).us
                    age_ms = (now_us - effect.since_us) // 1_000 if effect.since_us else self.now_ms
                    self.ledger.moves(agent.id, self.now_ms, self.now_ms - age_ms)
                self.serving[agent.id].perform(effect)
            else:
                others.append(effect)
        super()._perform(agent, others)

    def _reach_changed(self, agent: Agent, neighbour: BrokerId) -> None:
        super()._reach_changed(agent, neighbour)
        self.serving[agent.id].on_neighbour(neighbour, neighbour in agent.reach)

    def _serving_of(self, agent: Agent, path: DataPath) -> Serving:
        id, hub = agent.id, self._hub_of(agent.id)
        book = StampBook()
        if hub in self.switches:
            life = self.now_of(agent).us
            book = self._books.setdefault(hub, StampBook(b"secret of %d" % hub, life=life))
        stamps = self._stamps[id] = Stamps(hub, book, is_port=id in self.ports)
        path.plane.delivery.stamps = stamps
        for known in self.host_disks[id].custody.stamps:
            book.note(known)
        if id in self.ports:
            stamps.again = partial(self._tell_mesh_again, hub)
        stamps.stamping = hub in self._stamping
        note = Note(
            self.host_disks[id].note,
            can_write=lambda: not self.host_disks[id].custody.full_for,
            now_us=lambda: self.now_of(agent).us,
        )
        leaf = self.ports[id].leaf if id in self.ports else None
        chosen = partial(self._chosen, agent)
        decides = LeafServing(agent.node, path.plane.custody, stamps, note, chosen, leaf=leaf)
        decides.on_roaming = partial(self._on_roaming, hub)
        if hubs := self.plan.roaming.get(id, ()):
            return_after_ms = self._return_after_ms
            decides.choose_among(hubs, self.now_of(agent), return_after_ms=return_after_ms)
        decides.start()
        return Serving(agent, self, decides)

    def _chosen(self, agent: Agent, event: HubChosen) -> None:
        self.fired["hub chosen"] += 1
        self._handle(agent, event)

    def _on_roaming(self, hub: BrokerId) -> None:
        self._stamping.add(hub)
        for id in {hub, *self.ports_of(hub)} & self.agents.keys():
            self._stamps[id].stamping = True

    def _tell_mesh_again(self, hub: BrokerId, run: bytes) -> None:
        """As ``runtime.agent.beside.hub``."""
        self.fired["told mesh again"] += 1
        if hub in self.agents:
            path = self.data_paths[hub]
            path.read(run)
            path.plane.intake.flush(self.now_of(self.agents[hub]))
            path.arm()

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
        hub = self._hub_of(agent.id)  # a process has one clock
        agent.clock_offset_ms = self._offsets.setdefault(hub, agent.clock_offset_ms)
        path = super()._data_path(agent, epoch)
        if agent.id in self.ledger.relays:
            path.plane.forwarder.on_wanted = partial(self._wanted, agent.id)
        self.serving[agent.id] = self._serving_of(agent, path)
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

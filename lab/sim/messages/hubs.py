"""Hubs and leaves with clients: several agents beside one broker, which is the switch between them.

Each leaf and the port it hangs at are a federation of two, so in the plan they are a part of their
own; ports have ids here, by which the world knows them, that no other broker has. A hub's agent and
its ports are one process: they stop, pause and start together.

Source: docs/hubs.md.
"""

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from federator.protocol.effects import Pause, Proceed
from federator.protocol.events import HubChosen
from federator.protocol.filters import CoverChange
from federator.protocol.leaves.leaf_serving import LeafServing
from federator.protocol.leaves.stamps import StampBook, Stamps
from federator.protocol.leaves.switch import CLIENTS, Advertising, Switch
from federator.protocol.messages.serving import Served
from federator.protocol.types import BrokerId
from lab.sim.data import DataWorld, WakeUp
from lab.sim.disks import KEEP_S
from lab.sim.messages.hosts import HostDisk, NoteFile
from lab.sim.messages.ledger import LOOK_BACK_MS, Ledger
from lab.sim.network import Agent
from lab.sim.plan import Link, Port
from lab.sim.world import World

FIRST_LEAF, FIRST_PORT = 10, 1_000
HUBS_MAX = LEAVES_MAX = 3
AREAS_MAX, HUBS_IN_AREA_MAX, LEAVES_IN_AREA_MAX = 3, 2, 1
FIRST_AREA_LEAF = 100
FILTERS_MAX = (9, 12, 3_000)
"""Room for what each side is told: hardly any, or enough."""

ROAMING_SHARE = 0.7
"""Of leaves, where there are two hubs."""


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
    ids = {port.id for port in ports}
    return any(port.leaf in ids for port in ports)


@dataclass(frozen=True, slots=True)
class Note:
    """The file in use: ``now_us`` is the host's wall clock."""

    file: NoteFile
    can_write: Callable[[], bool]
    now_us: Callable[[], int]

    def read(self) -> tuple[Served | None, int]:
        return self.file.served, self.file.touched_us

    def write(self, served: Served) -> bool:
        if not self.can_write():
            return False
        self.file.served = served
        self.touch()
        return True

    def touch(self) -> None:
        self.file.touched_us = self.now_us()


@dataclass(eq=False, repr=False)
class Serving:
    """Of one agent."""

    agent: Agent
    world: DataWorld
    decides: LeafServing
    _wake_up: WakeUp = field(init=False)

    def __post_init__(self) -> None:
        next_deadline_ms = self.decides.next_deadline_ms
        self._wake_up = WakeUp(self.agent, self.world, next_deadline_ms, self._on_time)

    def on_neighbour(self, neighbour: BrokerId, up: bool) -> None:
        self.decides.on_neighbour(neighbour, up, self.world.now_of(self.agent))
        self._wake_up.arm()

    def perform(self, effect: Pause | Proceed) -> None:
        self.decides.perform(effect)

    def _on_time(self) -> None:
        now, due_ms = self.world.now_of(self.agent), self.decides.next_deadline_ms()
        if due_ms is not None and now.ms >= due_ms:
            self.decides.on_time(now)
        self._wake_up.arm()


class Hubs:
    """What hubs, ports and leaves have in a world besides other agents; nothing without ports.

    What a hub asks of a side is gathered for ``turn_ms`` of the plan, as in a process that is busy
    with other things: many leaves that come at once are told to a leaf at once.
    """

    def __init__(self, world: World, *, ledger: Ledger, disks: Mapping[BrokerId, HostDisk]) -> None:
        plan = world.plan
        self.ports = {port.id: port for port in plan.ports}
        self.serving: dict[BrokerId, Serving] = {}  # of the newest agents
        self._world = world
        self._ledger = ledger
        self._disks = disks
        self._stamps: dict[BrokerId, Stamps] = {}  # of the newest agents
        self._books: dict[BrokerId, StampBook] = {}  # of each hub's process
        self._offsets: dict[BrokerId, int] = {}  # of each hub's process
        self._stamping: set[BrokerId] = set()  # hubs whose process knows that a leaf has another
        self._untold: set[BrokerId] = set()  # agents that are told soon what they are asked for
        self._due_ms: dict[Switch, int] = {}
        self.switches = {hub: self._new_switch(hub) for hub in sorted(world.beside)}
        ledger.relays = frozenset((*self.switches, *self.ports))
        roaming = {port.hub for port in plan.ports if port.leaf in plan.roaming}
        where = {id: self.hub_of(id) for id in ledger.relays}
        ledger.stamped = {id: hub for id, hub in where.items() if hub in roaming}

    def hub_of(self, id: BrokerId) -> BrokerId:
        """The hub at which a port is; any other broker itself."""
        return self.ports[id].hub if id in self.ports else id

    # --- processes that start and stop ---

    def share_clock(self, agent: Agent) -> None:
        if not self.ports:
            return
        hub = self.hub_of(agent.id)
        agent.clock_offset_ms = self._offsets.setdefault(hub, agent.clock_offset_ms)

    def join(self, agent: Agent) -> None:
        """An agent starts: it learns what its side wants, and decides by whom leaves are served."""
        if agent.id in self._ledger.relays:
            agent.data.forwarder.report_wanted(partial(self._wanted, agent.id))
        if self.ports:
            self.serving[agent.id] = self._serving_of(agent)

    def started(self, id: BrokerId) -> None:
        """It runs: a hub's agents ask for what their switch says."""
        if id in self._ledger.relays:
            self._world.set_filters(id, self._asked(id))

    def stopped(self, id: BrokerId) -> None:
        if id not in self.switches:
            return
        self._books.pop(id, None)
        self._stamping.discard(id)
        self._offsets.pop(id, None)
        before, self.switches[id] = self.switches[id], self._new_switch(id)
        asked = {side: before.advertised_to(side) for side in (None, *self._world.beside[id])}
        self.switches[id].recall(asked, self._world.now_ms)

    # --- who may miss what ---

    def may_miss(self, id: BrokerId, number: int) -> list[str]:
        """What waits in a hub's broker the other hub of a leaf has, too, if the leaf can go there.

        Clients of the hub and of leaves without another one may miss it, and what these published
        all may; all may miss as well what was to pass between meshes there.
        """
        everyone, ports = self._ledger.home, self._world.beside.get(id, ())
        if not ports or any(self.ports[port].leaf in self.ports for port in ports):
            return list(everyone)
        item = self._ledger.published[number]
        hung = {self.ports[port].leaf for port in ports}
        lone = {id, *(leaf for leaf in hung if leaf not in self._world.plan.roaming)}
        may_miss = []
        for client, home in everyone.items():
            ends = {item.broker, home}
            sure = all(self._goes_on(leaf, id, item.at_ms) for leaf in ends & hung - lone)
            if ends & lone or not sure:
                may_miss.append(client)
        return may_miss

    def may_miss_brought(self, id: BrokerId, number: int) -> list[str]:
        """As what waits in a hub's broker: from there it was to be carried on."""
        hub = self.hub_of(id)
        return self.may_miss(hub, number) if hub in self.switches else self._ledger.clients_of(id)

    def _goes_on(self, leaf: BrokerId, lost: BrokerId, published_ms: int) -> bool:
        """Whether a leaf goes on at its other hub now, with what was published then."""
        agents = self._world.agents
        agent, choice = agents.get(leaf), self.serving[leaf].decides.choice
        if agent is None or agent.pauses or choice is None or choice.hub is None:
            return False
        if self.ports[choice.hub].hub != lost:
            return choice.is_served
        [other] = choice.others
        hub = agents.get(other)
        stands = other in agent.reach and hub is not None and not hub.pauses
        return stands and published_ms > self._world.now_ms - LOOK_BACK_MS

    # --- who is told what ---

    def on_clients(self, hub: BrokerId, added: Iterable[str], removed: Iterable[str]) -> None:
        switch, change = self.switches[hub], CoverChange((*sorted(added),), (*sorted(removed),))
        self._tell_sides(hub, switch, switch.change(CLIENTS, change, self._world.now_ms))

    def _wanted(self, id: BrokerId, added: Sequence[str], removed: Sequence[str]) -> None:
        """The mesh or a leaf wants otherwise: tell the other sides in the next turn."""
        change = CoverChange((*added,), (*removed,))
        switch = self.switches[self.hub_of(id)]
        self._world.agenda.at(self._world.now_ms, self._decide, id, switch, change)

    def _decide(self, id: BrokerId, switch: Switch, change: CoverChange) -> None:
        hub, now_ms = self.hub_of(id), self._world.now_ms
        if self.switches[hub] is switch:
            self._tell_sides(hub, switch, switch.change(None if id == hub else id, change, now_ms))

    def _tell_sides(self, hub: BrokerId, switch: Switch, advertising: Advertising) -> None:
        world = self._world
        for changes in advertising:
            for side, change in (changes or {}).items():
                if change:
                    world.fired["hub told"] += 1
                    self._tell_soon(hub if side is None else side)
        due_ms = switch.next_deadline_ms()
        if due_ms is not None:
            world.fired["hub filter lingers"] += 1
            if due_ms < self._due_ms.get(switch, due_ms + 1):
                self._due_ms[switch] = due_ms
                world.agenda.at(max(due_ms, world.now_ms + 1), self._on_switch_time, hub, switch)

    def _tell_soon(self, id: BrokerId) -> None:
        if not self._world.plan.turn_ms:
            self._tell(id)
        elif id not in self._untold:
            self._untold.add(id)
            self._world.agenda.at(self._world.now_ms + self._world.plan.turn_ms, self._tell, id)

    def _tell(self, id: BrokerId) -> None:
        self._untold.discard(id)
        self._world.set_filters(id, self._asked(id))

    def _on_switch_time(self, hub: BrokerId, switch: Switch) -> None:
        del self._due_ms[switch]
        if self.switches[hub] is switch:
            self._tell_sides(hub, switch, switch.on_deadline(self._world.now_ms))

    # --- who serves whom ---

    def complaints(self) -> Iterator[str]:
        """Leaves that are not served as they should be, once nothing goes wrong any more."""
        agents = self._world.agents
        for leaf, ports in self._world.plan.roaming.items():
            if leaf not in agents:
                continue
            choice = self.serving[leaf].decides.choice
            assert choice is not None
            if choice.hub is None or (self._world.plan.return_after_ms and choice.hub != ports[0]):
                yield f"leaf {leaf} is served by {choice.hub}, and prefers {ports[0]}"
            for here, there in [(leaf, port) for port in ports] + [(port, leaf) for port in ports]:
                if here in agents and there in agents:
                    serves = choice.hub in (here, there)
                    way = agents[here].data.forwarder.next_hop_to(there)
                    if (way is not None) != serves:
                        yield f"{here} sends {there} by way of {way}, and {choice.hub} serves"

    def on_serving(self, agent: Agent, effect: Pause | Proceed) -> None:
        """Exchange nothing with a neighbour, or exchange again; a leaf moves by that."""
        if isinstance(effect, Proceed) and agent.id in self._world.plan.roaming:
            now_ms, now_us = self._world.now_ms, self._world.now_of(agent).us
            age_ms = (now_us - effect.since_us) // 1_000 if effect.since_us else now_ms
            self._ledger.moves(agent.id, now_ms, now_ms - age_ms)
        self.serving[agent.id].perform(effect)

    def _serving_of(self, agent: Agent) -> Serving:
        world, id, hub = self._world, agent.id, self.hub_of(agent.id)
        book, disk, plane = StampBook(), self._disks[id], agent.data
        if hub in self.switches:
            life = world.now_of(agent).us
            book = self._books.setdefault(hub, StampBook(b"secret of %d" % hub, life=life))
        stamps = self._stamps[id] = Stamps(hub, book, is_port=id in self.ports)
        plane.delivery.stamps = stamps
        for known in disk.custody.stamps:
            book.note(known)
        if id in self.ports:
            stamps.again = partial(self._tell_mesh_again, hub)
        stamps.stamping = hub in self._stamping
        note = Note(
            disk.note,
            can_write=lambda: not disk.custody.full_for,
            now_us=lambda: world.now_of(agent).us,
        )
        leaf = self.ports[id].leaf if id in self.ports else None
        chosen = partial(self._chosen, agent)
        roaming = partial(self._on_roaming, hub)
        decides = LeafServing(
            agent.node.links,
            agent.node.serving,
            plane.custody,
            stamps,
            note,
            chosen,
            leaf=leaf,
            on_roaming=roaming,
        )
        if hubs := world.plan.roaming.get(id, ()):
            return_after_ms = self._world.plan.return_after_ms
            decides.choose_among(hubs, world.now_of(agent), return_after_ms=return_after_ms)
        decides.start()
        return Serving(agent, world, decides)

    def _chosen(self, agent: Agent, event: HubChosen) -> None:
        self._world.fired["hub chosen"] += 1
        self._world.handle(agent, event)

    def _on_roaming(self, hub: BrokerId) -> None:
        self._stamping.add(hub)
        for id in self._world.at_broker(hub):
            if id in self._world.agents:
                self._stamps[id].stamping = True

    def _tell_mesh_again(self, hub: BrokerId, run: bytes) -> None:
        """As ``runtime.leaves.hub``."""
        world = self._world
        world.fired["told mesh again"] += 1
        if hub in world.agents:
            path = world.data_paths[hub]
            path.read(run)
            path.plane.intake.flush(world.now_of(world.agents[hub]))
            path.arm()

    # --- inside ---

    def _new_switch(self, hub: BrokerId) -> Switch:
        leaves = self._world.beside[hub]
        return Switch(
            leaves, filters_max=self._world.plan.hub_filters_max, linger_ms=KEEP_S * 1_000
        )

    def _asked(self, id: BrokerId) -> frozenset[str]:
        return self.switches[self.hub_of(id)].advertised_to(id if id in self.ports else None)

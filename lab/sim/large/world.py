"""The world of hubs and leaves, made lean: the same agents, without what they hear of themselves.

Nodes, data planes, custody, ports and switches are the daemon's, as in ``messages.hubs``, and so
are sessions, queues and disks. Left out is discovery: agents are told what clients want, and not by
log lines, of which 200 sessions at a hub's broker would each get a copy. An agent's once-a-second
look at its custody happens while there was something to look at lately.

What a hub's sides want of each other is gathered for a turn before it is told, as in a process
that is busy with other things: many leaves that come at once are told to a leaf at once.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from federator.protocol.filters import CoverChange
from federator.protocol.leaves.switch import Switch, Telling
from federator.protocol.messages import control
from federator.protocol.types import BrokerId
from lab.sim.large.plan import LargePlan
from lab.sim.messages.brokers import MessageBroker
from lab.sim.messages.hosts import SAVE_GAP_MS, Host
from lab.sim.messages.hubs import HubWorld
from lab.sim.messages.sessions import Message, Session
from lab.sim.network import Agent, Connection
from lab.sim.watcher import Watcher
from lab.sim.world import World

CALLS_MAX = 1_000_000_000
TURN_MS = 20
BUSY_MS = 5_000
"""How long an agent looks at its custody each second after a publication or a change of filters."""


class QuietBroker(MessageBroker):
    """A broker that says nothing about itself, as nobody here would listen."""

    def _log(self, kind: str, text: str) -> None:
        pass

    def _tell_numbers(self, life: int) -> None:
        pass


@dataclass(eq=False, repr=False)
class QuietHost(Host):
    """An agent beside its broker that is told what clients want."""

    _busy_until_ms: int = 0
    _looking: bool = False  # the next look is due

    def start(self) -> None:
        """Read the disk."""
        self.agent.data.custody.resume(self._world.now_of(self.agent))
        self.busy()

    def connect(self) -> None:
        """The broker answers."""
        self._open()

    def disconnect(self) -> None:
        """The connections are gone."""
        self._close()

    def busy(self) -> None:
        """Look at what custody keeps, for a while."""
        self._busy_until_ms = self._agenda.now_ms + BUSY_MS
        if not self._looking:
            self._every_second()

    def _every_second(self) -> None:
        self._looking = True
        self._world.tend(self.agent)
        when_ms = self._agenda.now_ms + SAVE_GAP_MS
        self._looking = when_ms <= self._busy_until_ms
        if self._looking:
            self._agenda.at(when_ms, self._world.run, self.agent, self._every_second)

    def _take_data(
        self, session: Session, connection: int, packet_id: int, message: Message
    ) -> None:
        self.busy()
        super()._take_data(session, connection, packet_id, message)

    def _control_filters(self) -> tuple[str, ...]:
        return (self.agent.data.delivery.marker_topic,)


class LargeWorld(HubWorld):
    """Hubs and leaves by the thousand."""

    broker_type = QuietBroker
    host_type = QuietHost

    def __init__(self, large: LargePlan, *, watcher: Watcher | None = None) -> None:
        self._news: dict[BrokerId, list[tuple[BrokerId, CoverChange]]] = {}
        self._untold: dict[BrokerId, set[BrokerId]] = {}
        self._due_ms: dict[BrokerId, int] = {}
        self.wanted_by_clients: dict[BrokerId, frozenset[str]] = {}
        for client in large.plan.subscribers:
            wanted = frozenset(filter for filter, _ in client.filters)
            self.wanted_by_clients[client.broker] = wanted
        super().__init__(
            large.plan,
            (*large.ports, *large.borders),
            filters_max=large.filters_max,
            return_after_ms=0,  # its leaves have one hub each
            seed=large.seed,
            watcher=watcher,
        )
        self.agenda.calls_max = CALLS_MAX
        self.large = large
        self.said: Counter[str] = Counter()  # control messages and their bytes, by who says them
        roles = dict.fromkeys(self.plan.ids, "hub") | dict.fromkeys(large.sites, "leaf")
        self._roles = roles | dict.fromkeys(self.ports, "port")
        self._roles |= dict.fromkeys((port.id for port in large.borders), "border")

    # --- deaths ---

    def kill(self, hub: BrokerId, *, until_ms: int) -> None:
        """The host of a hub dies: broker, agent and ports at once; it is back at ``until_ms``."""
        self.stop_broker(hub)
        self.stop_agent(hub)
        self.agenda.at(until_ms, self.start_broker, hub)
        self.agenda.at(until_ms, self.start_agent, hub)

    def stop_broker(self, id: BrokerId, *, orderly: bool = False) -> None:
        """Kill the broker, to which leaves connect as well."""
        super().stop_broker(id, orderly=orderly)
        for port in self.ports_of(id):
            World.stop_broker(self, port)
            if port in self.hosts:
                self.hosts[port].connection.broker_dies()

    def start_broker(self, id: BrokerId) -> None:
        """End one cause of its absence."""
        super().start_broker(id)
        for port in self.ports_of(id):
            World.start_broker(self, port)

    # --- what agents say, and are told ---

    def say(self, agent: Agent, connection: Connection, message: control.Message) -> None:
        """Send a control message."""
        super().say(agent, connection, message)
        role = self._roles[agent.id]
        self.said[role] += 1
        self.said[f"{role} bytes"] += len(self._encoded[1])

    def arrive(self, id: BrokerId, kind: str, payload: bytes) -> None:
        """A message is published on the control or data topic ``kind`` of broker ``id``."""
        if kind == "data":
            self._busy(id)
        super().arrive(id, kind, payload)

    def set_filters(self, id: BrokerId, filters: frozenset[str]) -> None:
        """The clients of a broker now subscribe to ``filters``: since when must be written down."""
        super().set_filters(id, filters)
        self._busy(id)

    def _busy(self, id: BrokerId) -> None:
        host = self.hosts.get(id)
        if isinstance(host, QuietHost):
            host.busy()

    def _start(self, id: BrokerId) -> None:
        was_running = id in self.agents
        super()._start(id)
        if was_running or id not in self.agents or id not in self.wanted_by_clients:
            return
        wanted = self.wanted_by_clients[id]
        if id in self.switches:
            switch = self.switches[id]
            self._tell_sides(id, switch, switch.on_clients(sorted(wanted), (), self._ms))
        else:
            self.set_filters(id, wanted)

    def _wanted(self, id: BrokerId, added: Sequence[str], removed: Sequence[str]) -> None:
        hub = self._hub_of(id)
        news = self._news.setdefault(hub, [])
        if not news:
            self.agenda.at(self.now_ms + TURN_MS, self._decide_all, hub, self.switches[hub])
        news.append((id, CoverChange((*added,), (*removed,))))

    def _decide_all(self, hub: BrokerId, switch: Switch) -> None:
        """Tell each side at once what the others want since the last turn."""
        news = self._news.pop(hub, [])
        if self.switches[hub] is not switch:
            return
        for id, change in news:
            if id == hub:
                self._tell_sides(hub, switch, switch.on_mesh(change, self._ms))
            else:
                self._tell_sides(hub, switch, switch.on_leaf(id, change, self._ms))

    def _tell_sides(self, hub: BrokerId, switch: Switch, telling: Telling) -> None:
        untold = self._untold.setdefault(hub, set())
        waited = bool(untold)
        for told in telling:
            if told is not None:
                untold.update(told.leaves, [hub] if told.mesh else [])
        if untold and not waited:
            self.agenda.at(self.now_ms, self._tell_all, hub)
        due_ms = switch.next_deadline_ms()
        if due_ms is not None and due_ms < self._due_ms.get(hub, due_ms + 1):
            self._due_ms[hub] = due_ms
            self.agenda.at(max(due_ms, self.now_ms + 1), self._on_switch_time, hub, switch)

    def _tell_all(self, hub: BrokerId) -> None:
        for id in sorted(self._untold.pop(hub, ())):
            self.set_filters(id, self._asked(id).filters)

    def _on_switch_time(self, hub: BrokerId, switch: Switch) -> None:
        self._due_ms.pop(hub, None)
        now = self.switches[hub]  # another one, when the hub died meanwhile
        self._tell_sides(hub, now, now.on_deadline(self._ms))

    def _local_attempt(self, agent: Agent) -> None:
        # No log is heard, so nothing of what ports subscribe is held against it.
        super(HubWorld, self)._local_attempt(agent)

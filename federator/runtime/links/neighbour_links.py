"""Connections to neighbours' brokers: two ``MqttLink``s per address, for ever.

Control messages have one of their own. Behind a megabyte of data on a narrow link a hello would
come too late, whatever our queues do: what the kernel and the network hold cannot be overtaken.
The two live and die together, so that no link seems well over which no data goes.

Each time they connect they get a new ``ConnId``, which the Will of the control connection names
too: the Will of a connection that was replaced since is then recognised as stale.

Which neighbour is at the other end, and whether the link is good for anything, is decided in
``protocol.links.links``.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from mqtt5 import Will

from federator.protocol.events import NeighbourConnected, NeighbourDisconnected
from federator.protocol.types import BrokerId, ConnId, Cost
from federator.runtime.mqtt.link import LinkObserver, MqttLink

DIALLED_BACK_MAX = 256
"""Brokers that named themselves and are dialled for ever; anybody may invent one."""

MakeLink = Callable[
    [Literal["ctl", "data"], "NeighbourObserver", Callable[[], Will] | None], MqttLink
]
"""Makes the link for a purpose, with an observer and a Will."""


@dataclass(slots=True)
class NeighbourLink:
    """One address, and the connections to it at the moment.

    Attributes:
        address: As configured, or as the neighbour named itself.
        conn: Of the current connections, or of those being tried.
        dialled_for: The neighbour that was dialled back, else ``None``.
        control: Carries control messages, and has the Will.
        data: Carries frames.
    """

    address: str
    expected_id: BrokerId | None
    cost: Cost | None
    dialled_for: BrokerId | None = None
    control: MqttLink | None = None
    data: MqttLink | None = None
    conn: ConnId | None = None
    tasks: tuple[asyncio.Task[None], ...] = ()

    @property
    def links(self) -> tuple[MqttLink, ...]:
        """The control and the data connection; none before the address is dialled."""
        return tuple(link for link in (self.control, self.data) if link is not None)

    @property
    def connected(self) -> bool:
        """Whether both connections stand."""
        return bool(self.links) and all(link.connected for link in self.links)

    @property
    def tried(self) -> bool:
        """Whether each connection stands or has failed once."""
        return len(self.links) > 0 and all(k.connected or k.last_error for k in self.links)

    @property
    def last_error(self) -> str | None:
        """Why a connection does not stand; ``None`` when both do."""
        errors = (link.last_error for link in self.links if not link.connected)
        return next((error for error in errors if error), None)


@dataclass(eq=False, repr=False)
class NeighbourLinks:
    """All connections to neighbours' brokers."""

    tasks: asyncio.TaskGroup
    will_for: Callable[[ConnId], Will]
    tell: Callable[[NeighbourConnected | NeighbourDisconnected], None]

    def __post_init__(self) -> None:
        self.all: list[NeighbourLink] = []
        self._by_conn: dict[ConnId, NeighbourLink] = {}
        self._by_link: dict[MqttLink, NeighbourLink] = {}
        self._last_conn = 0

    def dial(self, neighbour: NeighbourLink, make_link: MakeLink) -> None:
        """Connect, and keep connecting."""
        observer = NeighbourObserver(neighbour, self._connected, self._disconnected)

        def next_will() -> Will:
            self._last_conn += 1
            neighbour.conn = ConnId(self._last_conn)
            return self.will_for(neighbour.conn)

        neighbour.control = make_link("ctl", observer, next_will)
        neighbour.data = make_link("data", observer, None)
        self._by_link |= dict.fromkeys(neighbour.links, neighbour)
        neighbour.tasks = tuple(
            self.tasks.create_task(link.run(), name=f"link to {neighbour.address}")
            for link in neighbour.links
        )
        self.all.append(neighbour)

    def control_of(self, conn: ConnId) -> MqttLink | None:
        """The control connection behind ``conn``, or ``None`` when it is gone."""
        neighbour = self._by_conn.get(conn)
        return neighbour.control if neighbour is not None else None

    def data_of(self, conn: ConnId) -> MqttLink | None:
        """The data connection behind ``conn``, or ``None`` when it is gone."""
        neighbour = self._by_conn.get(conn)
        return neighbour.data if neighbour is not None else None

    def having(self, link: MqttLink) -> NeighbourLink | None:
        """What ``link`` belongs to, or ``None`` when it is gone."""
        return self._by_link.get(link)

    def hang_up(self, conn: ConnId) -> None:
        """Close ``conn`` for good."""
        neighbour = self._by_conn.pop(conn, None)
        if neighbour is not None:
            self._end(neighbour)

    def make_room(self) -> bool:
        """Whether one more broker may be dialled back; the oldest that never answers gives way."""
        dialled = [n for n in self.all if n.dialled_for is not None]
        if len(dialled) < DIALLED_BACK_MAX:
            return True
        for neighbour in dialled:
            if not neighbour.connected:
                self._end(neighbour)
                return True
        return False

    def hang_up_dialled(self, neighbour_id: BrokerId) -> None:
        """Forget the address dialled for ``neighbour_id`` before, if any."""
        for neighbour in [n for n in self.all if n.dialled_for == neighbour_id]:
            self._end(neighbour)

    def call_off(self, address: str) -> None:
        """Try ``address`` no more, which nobody was dialled back at."""
        for neighbour in [n for n in self.all if (n.address, n.dialled_for) == (address, None)]:
            self._end(neighbour)

    def _end(self, neighbour: NeighbourLink) -> None:
        self.all.remove(neighbour)
        for link in neighbour.links:
            del self._by_link[link]
        for task in neighbour.tasks:
            task.cancel()

    def _connected(self, neighbour: NeighbourLink) -> None:
        if not neighbour.connected:
            return
        assert neighbour.conn is not None, "the Will was made before the connection"
        self._by_conn[neighbour.conn] = neighbour
        event = NeighbourConnected(
            neighbour.conn, neighbour.address, neighbour.expected_id, neighbour.cost
        )
        self.tell(event)

    def _disconnected(self, neighbour: NeighbourLink) -> None:
        if neighbour.conn is None or self._by_conn.pop(neighbour.conn, None) is None:
            return
        if neighbour.control is not None:
            neighbour.control.drop("its data connection is lost")  # a new one has a new ConnId
        self.tell(NeighbourDisconnected(neighbour.conn))


@dataclass(eq=False, repr=False)
class NeighbourObserver(LinkObserver):
    """Passes on that a connection came or went. Neighbours' brokers send us nothing."""

    neighbour: NeighbourLink
    connected: Callable[[NeighbourLink], None]
    disconnected: Callable[[NeighbourLink], None]

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """Tell when both connections stand: the broker accepted us."""
        self.connected(self.neighbour)

    def on_down(self, link: MqttLink, reason: str) -> None:
        """Tell that the neighbour is disconnected: one connection is lost."""
        self.disconnected(self.neighbour)

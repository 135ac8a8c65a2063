"""Connections to neighbours' brokers: one ``MqttLink`` per address, for ever.

Each time one connects it gets a new ``ConnId``, which its Will names too: the Will of a connection
that was replaced since is then recognised as stale.

Which neighbour is at the other end, and whether the link is good for anything, is decided in
``protocol.links``.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from mqtt5 import Will

from federator.protocol.events import NeighbourConnected, NeighbourDisconnected
from federator.protocol.types import BrokerId, ConnId, Cost
from federator.runtime.mqtt_link import Inbound, MqttLink

DIALLED_BACK_MAX = 256
"""Brokers that named themselves and are dialled for ever; anybody may invent one."""

ConnectionEvent = NeighbourConnected | NeighbourDisconnected


@dataclass(slots=True)
class NeighbourLink:
    """One address, and the connection to it at the moment.

    Attributes:
        address: As configured, or as the neighbour named itself.
        expected_id: The configured id.
        conn: Of the current connection, or of the one being tried.
        dialled_for: The neighbour that was dialled back, else ``None``.
    """

    address: str
    expected_id: BrokerId | None
    cost: Cost
    dialled_for: BrokerId | None = None
    link: MqttLink | None = None
    conn: ConnId | None = None
    task: asyncio.Task[None] | None = None


class NeighbourLinks:
    """All connections to neighbours' brokers.

    Args:
        tasks: Runs the links.
        will_for: The Will of a connection.
        tell: Told when connections come and go.
    """

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        *,
        will_for: Callable[[ConnId], Will],
        tell: Callable[[ConnectionEvent], None],
    ) -> None:
        self.all: list[NeighbourLink] = []
        self._tasks = tasks
        self._will_for = will_for
        self._tell = tell
        self._by_conn: dict[ConnId, NeighbourLink] = {}
        self._last_conn = 0

    def dial(
        self,
        neighbour: NeighbourLink,
        make_link: Callable[["ConnectionHandler", Callable[[], Will]], MqttLink],
    ) -> None:
        """Connect, and keep connecting."""
        handler = ConnectionHandler(neighbour, self._connected, self._disconnected)

        def next_will() -> Will:
            self._last_conn += 1
            neighbour.conn = ConnId(self._last_conn)
            return self._will_for(neighbour.conn)

        neighbour.link = make_link(handler, next_will)
        neighbour.task = self._tasks.create_task(
            neighbour.link.run(), name=f"link to {neighbour.address}"
        )
        self.all.append(neighbour)

    def link_of(self, conn: ConnId) -> MqttLink | None:
        """The link behind ``conn``, or ``None`` when that connection is gone."""
        neighbour = self._by_conn.get(conn)
        return neighbour.link if neighbour is not None else None

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
            if neighbour.link is None or not neighbour.link.connected:
                self._end(neighbour)
                return True
        return False

    def hang_up_dialled(self, neighbour_id: BrokerId) -> None:
        """Forget the address dialled for ``neighbour_id`` before, if any."""
        for neighbour in [n for n in self.all if n.dialled_for == neighbour_id]:
            self._end(neighbour)

    def _end(self, neighbour: NeighbourLink) -> None:
        self.all.remove(neighbour)
        if neighbour.task is not None:
            neighbour.task.cancel()

    def _connected(self, neighbour: NeighbourLink) -> None:
        assert neighbour.conn is not None, "the Will was made before the connection"
        self._by_conn[neighbour.conn] = neighbour
        event = NeighbourConnected(
            neighbour.conn, neighbour.address, neighbour.expected_id, neighbour.cost
        )
        self._tell(event)

    def _disconnected(self, neighbour: NeighbourLink) -> None:
        assert neighbour.conn is not None
        if self._by_conn.pop(neighbour.conn, None) is not None:
            self._tell(NeighbourDisconnected(neighbour.conn))


class ConnectionHandler:
    """Passes on that a link came up or went down. Neighbours' brokers send us nothing."""

    def __init__(
        self,
        neighbour: NeighbourLink,
        connected: Callable[[NeighbourLink], None],
        disconnected: Callable[[NeighbourLink], None],
    ) -> None:
        self._neighbour = neighbour
        self._connected = connected
        self._disconnected = disconnected

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """The broker accepted us."""
        self._connected(self._neighbour)

    def on_subscribed(self, link: MqttLink) -> None:
        """Nothing is subscribed there."""

    def on_down(self, link: MqttLink, reason: str) -> None:
        """The connection is lost."""
        self._disconnected(self._neighbour)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Nothing is expected."""

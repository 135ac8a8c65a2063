"""Connections to neighbours' brokers: two ``MqttLink``s per address, for ever.

For a neighbour that cannot be dialled, we publish in its outbox on our own broker: such connections
lead there, and are otherwise like the others. If we cannot be dialled ourselves, messages for us
arrive over the connections that we dialled.

Control messages have a connection of their own. Behind a megabyte of data on a narrow link a hello
would come too late, whatever our queues do: what the kernel and the network hold cannot be
overtaken. The two live and die together, so that no link seems well over which no data goes.

We retry the addresses that the operator names for ever, and those of agents that connect to us and
announce an address: either end can make a link. The number of strangers' addresses is bounded.

Each time they connect they get a new ``ConnId``, which the Will of the control connection names
too: a late Will of a replaced connection is thereby recognised as stale.

``protocol.links.links`` decides which neighbour is at the other end, and whether the link is
usable.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import structlog
from mqtt5 import PublishPacket, QoS, Will

from federator.config.brokers import BrokerAddress, NeighbourSettings
from federator.config.settings import Settings
from federator.protocol.discovery.roll_call import RollCall
from federator.protocol.events import (
    LinksConfigured,
    NamedNeighbour,
    NeighbourConnected,
    NeighbourDisconnected,
)
from federator.protocol.links.outbox import is_outbox
from federator.protocol.messages.codec import CONTROL_KINDS, WINDOW
from federator.protocol.messages.topics import (
    DATA,
    connection_state_topic,
    control_topic,
    outbox_topic,
)
from federator.protocol.parameters import LinkCost
from federator.protocol.types import BrokerId, ConnId, Cost
from federator.runtime.links.outbox_link import OutboxLink
from federator.runtime.mqtt.endpoint import Endpoint, endpoint_of
from federator.runtime.mqtt.link import Inbound, LinkObserver, MqttLink
from federator.runtime.mqtt.secret_names import secret_name
from federator.runtime.mqtt.subscriptions import live_filter

DIALLED_BACK_MAX = 256
"""Brokers that announced themselves and are dialled for ever; any client may invent one."""

KEEP_ALIVE_S = 10

LINK_UP, LINK_DOWN = b"1", b"0"
"""The state of our link that a neighbour's broker retains, as bridges encode it."""

_Link = TypeVar("_Link", bound=MqttLink)

_log = structlog.get_logger()


@dataclass(slots=True)
class NeighbourLink:
    """One address, and the current connections to it.

    Attributes:
        address: As configured, or as the neighbour announced it.
        connection: How to dial and log in.
        conn: The id of the current connections, or of those being tried.
        dialled_for: The neighbour that was dialled back, else ``None``.
        kept: The operator named it among the neighbours.
        capacity: As the operator configured, in bit/s.
        outbox_of: The neighbour that fetches our messages from our own broker: we cannot dial it.
        reached: The neighbour of an outbox is linked with us.
        takes_outbox: Over these connections we receive what is published for us at the other end.
        control: Carries control messages, and has the Will; set when the address is dialled, as
        data: which carries frames.
    """

    address: str
    connection: BrokerAddress
    expected_id: BrokerId | None
    cost: Cost | None
    dialled_for: BrokerId | None = None
    kept: bool = False
    capacity: int | None = None
    outbox_of: BrokerId | None = None
    reached: bool = False
    takes_outbox: bool = False
    rolls: RollCall = field(default_factory=RollCall)
    control: MqttLink = field(init=False)
    data: MqttLink = field(init=False)
    conn: ConnId | None = None
    tasks: tuple[asyncio.Task[None], ...] = ()

    def name(self, neighbour: NeighbourSettings) -> None:
        """Apply the operator's settings of this neighbour."""
        self.expected_id = BrokerId(neighbour.id) if neighbour.id is not None else None
        self.cost = Cost(neighbour.cost) if neighbour.cost is not None else None
        self.capacity = neighbour.capacity
        self.dialled_for, self.kept = None, True

    def is_reached(self, connection: BrokerAddress, password: bytes | None) -> bool:
        """Whether it is dialled at ``connection`` with the current ``password``."""
        ours = self.control.endpoint.password
        return (self.connection.reaching, ours) == (connection.reaching, password)

    @property
    def links(self) -> tuple[MqttLink, ...]:
        """The control and the data connection."""
        return self.control, self.data

    @property
    def connected(self) -> bool:
        """Whether both connections are up, and we receive what is published for us there."""
        if self.takes_outbox:
            return self.control.subscribed and self.data.subscribed
        return self.control.connected and self.data.connected

    @property
    def outbox_refused(self) -> bool:
        """Whether the broker there refused our subscriptions to our outbox."""
        return self.takes_outbox and any(link.refused_filters for link in self.links)

    def topic(self, federation: str, kind: str) -> str:
        """The topic for messages of ``kind``, or ``DATA``, to the neighbour at the other end."""
        if self.outbox_of is None:
            return control_topic(federation, kind)
        return outbox_topic(federation, self.outbox_of, kind)

    @property
    def tried(self) -> bool:
        """Whether each connection is up or has failed once."""
        return all(link.connected or link.last_error for link in self.links)

    @property
    def last_error(self) -> str | None:
        """Why a connection is down; ``None`` when both are up."""
        errors = (link.last_error for link in self.links if not link.connected)
        return next((error for error in errors if error), None)


@dataclass(eq=False, repr=False)
class NeighbourLinks:
    """All connections of one agent to neighbours' brokers."""

    settings: Settings
    tasks: asyncio.TaskGroup
    will_for: Callable[["NeighbourLink", ConnId], Will]
    tell: Callable[[NeighbourConnected | NeighbourDisconnected | LinksConfigured], None]

    def __post_init__(self) -> None:
        self.all: list[NeighbourLink] = []
        self.on_fetched: Callable[[NeighbourLink, MqttLink, Sequence[Inbound]], None] | None = None
        # Publishes a mark in an outbox on our own broker.
        self.mark: Callable[[NeighbourLink], None] = lambda neighbour: None
        self._by_conn: dict[ConnId, NeighbourLink] = {}
        self._last_conn = 0

    def fetch(self, hear: Callable[["NeighbourLink", MqttLink, Sequence[Inbound]], None]) -> None:
        """Give ``hear`` what comes from our outboxes on neighbours' brokers."""
        self.on_fetched = hear

    def start(self) -> None:
        """Dial the configured neighbours."""
        for neighbour in self.settings.neighbours:
            connection = self.settings.neighbour_connection(neighbour)
            self._dial_named(neighbour, connection, endpoint_of(connection))

    def endpoints_for(self, settings: Settings) -> dict[str, Endpoint]:
        """The endpoints, by URL, of neighbours in ``settings`` without a link to that address.

        It reads files, and may be called off the loop.

        Raises:
            OSError: A file cannot be read.
            ValueError: A certificate or key is not usable.
        """
        kept = {link.address: link for link in tuple(self.all) if link.kept}
        endpoints: dict[str, Endpoint] = {}
        for neighbour in settings.neighbours:
            connection, link = settings.neighbour_connection(neighbour), kept.get(neighbour.url)
            if link is None or not link.is_reached(connection, connection.secret()):
                endpoints[neighbour.url] = endpoint_of(connection)
        return endpoints

    def follow(self, settings: Settings, endpoints: Mapping[str, Endpoint]) -> None:
        """Link with the neighbours of ``settings`` from now on, and report their settings.

        ``endpoints`` come from ``endpoints_for``. A link that was dialled back before its neighbour
        was named goes on if it is reached in the same way.
        """
        named = {neighbour.url for neighbour in settings.neighbours}
        given_up = {neighbour.url for neighbour in self.settings.neighbours} - named
        self.settings = settings
        links = {link.address: link for link in self.all}
        for neighbour in settings.neighbours:
            connection = settings.neighbour_connection(neighbour)
            endpoint, link = endpoints.get(neighbour.url), links.get(neighbour.url)
            if link is not None:
                if endpoint is None or link.is_reached(connection, endpoint.password):
                    link.name(neighbour)
                    continue
                self._end(link)
            assert endpoint is not None, "there was no link that the operator wanted"
            self._dial_named(neighbour, connection, endpoint)
        self.tell(
            LinksConfigured(
                tuple(NamedNeighbour(n.address, n.expected_id, n.cost) for n in self.all if n.kept),
                frozenset(given_up),
                LinkCost(settings.links.cost),
            )
        )
        for address in sorted(given_up):
            self.call_off(address)  # a link there may never have connected

    def dial_back(self, neighbour: BrokerId, address: str) -> None:
        """Dial ``neighbour`` at its announced address, or keep an outbox for it, if useful."""
        broker = self.settings.broker
        try:
            connection = broker if is_outbox(address) else self.settings.dialled_back(address)
        except ValueError as error:
            _log.warning("neighbour.not_dialled", neighbour=neighbour, reason=str(error))
            return
        named = [neighbour_settings.address for neighbour_settings in self.settings.neighbours]
        if connection is not broker and connection.address in named:
            return  # it is already retried for ever
        self.hang_up_dialled(neighbour)
        if not self._make_room():
            reason = f"{DIALLED_BACK_MAX} brokers are dialled back already"
            _log.warning("neighbour.not_dialled", neighbour=neighbour, reason=reason)
            return
        link = NeighbourLink(address, connection, neighbour, None, dialled_for=neighbour)
        link.outbox_of = neighbour if connection is broker else None
        self._dial(link, endpoint_of(connection))

    def dial_seed(self, address: str) -> None:
        """Dial a broker that the operator named for joining, whichever it is."""
        try:
            connection = self.settings.seed(address)
            self._dial(NeighbourLink(address, connection, None, None), endpoint_of(connection))
        except (OSError, ValueError) as error:
            _log.warning("topology.seed_not_dialled", address=address, reason=str(error))

    def _dial_named(
        self, neighbour: NeighbourSettings, connection: BrokerAddress, endpoint: Endpoint
    ) -> None:
        """Dial a neighbour at the configured address, and at no other."""
        link = NeighbourLink(neighbour.url, connection, None, None)
        link.name(neighbour)
        if link.expected_id is not None:
            self.hang_up_dialled(link.expected_id)
        self._dial(link, endpoint)

    def _dial(self, neighbour: NeighbourLink, endpoint: Endpoint) -> None:
        """Connect, and keep connecting."""
        links, target = self.settings.links, neighbour.connection
        ours = f"{self.settings.broker.id}-to-{target.address.host}-{target.address.port}"
        if neighbour.outbox_of is not None:
            ours = f"{self.settings.broker.id}-for-{neighbour.outbox_of}"
        elif isinstance(target, NeighbourSettings):
            neighbour.takes_outbox = self.settings.takes_outbox(target)
        observer = NeighbourObserver(neighbour, self)
        # If we receive over this link, we must soon notice that it is dead: a NAT forgets it.
        soon_s = max(2, round(2 * links.hello_timeout_ms / 1000))
        keep_alive_s = min(KEEP_ALIVE_S, soon_s) if neighbour.takes_outbox else KEEP_ALIVE_S

        def make_link(
            role: str, will: Will | Callable[[], Will] | None, kind: Callable[..., _Link]
        ) -> _Link:
            return kind(
                endpoint,
                observer,
                client_id=secret_name(f"{ours}-{role}"),
                will=will,
                keep_alive_s=keep_alive_s,
                reconnect_min_ms=links.reconnect_min_ms,
                reconnect_max_ms=links.reconnect_max_ms,
                send_queue_bytes_max=links.send_queue_bytes_max,
            )

        def next_will() -> Will:
            self._last_conn += 1
            neighbour.conn = ConnId(self._last_conn)
            return self.will_for(neighbour, neighbour.conn)

        neighbour.control = make_link("ctl", next_will, MqttLink)
        if neighbour.outbox_of is None:
            neighbour.data = make_link("data", self._link_will(), MqttLink)
        else:
            keep = partial(OutboxLink, window_bytes=links.outbox_bytes_max)
            neighbour.data = data = make_link("data", None, keep)
            data.mark = lambda: self.mark(neighbour)
        if neighbour.takes_outbox:
            self._take_outbox(neighbour)
        neighbour.tasks = tuple(
            self.tasks.create_task(link.run(), name=f"link to {neighbour.address}")
            for link in neighbour.links
        )
        self.all.append(neighbour)

    def _take_outbox(self, neighbour: NeighbourLink) -> None:
        """Subscribe to our outbox there: data and marks on one link, the rest on the other."""
        control_kinds = tuple(kind for kind in CONTROL_KINDS if kind != WINDOW)
        for link, kinds in ((neighbour.control, control_kinds), (neighbour.data, (DATA, WINDOW))):
            link.subscribe(
                live_filter(
                    outbox_topic(self.settings.federation, self.settings.broker_id, kind),
                    QoS.AT_MOST_ONCE,
                )
                for kind in kinds
            )

    def _notifies(self, neighbour: NeighbourLink) -> bool:
        """Whether we report the link to the broker at the other end: it is not our own."""
        return self.settings.links.notifications and neighbour.outbox_of is None

    def _link_will(self) -> Will | None:
        """The Will by which a neighbour's broker reports our link as down."""
        if not self.settings.links.notifications:
            return None
        topic = connection_state_topic(self.settings.broker_id)
        return Will(topic, payload=LINK_DOWN, retain=True)

    def data_of(self, conn: ConnId) -> MqttLink | None:
        """The data connection behind ``conn``, or ``None`` when it is gone."""
        neighbour = self._by_conn.get(conn)
        return neighbour.data if neighbour is not None else None

    def data_topic(self, conn: ConnId | None) -> str | None:
        """The topic for frames behind ``conn``; ``None`` when it is gone."""
        neighbour = self._by_conn.get(conn) if conn is not None else None
        return neighbour.topic(self.settings.federation, DATA) if neighbour is not None else None

    def behind_conn(self, conn: ConnId) -> NeighbourLink | None:
        """The link that ``conn`` belongs to, or ``None`` when it is gone."""
        return self._by_conn.get(conn)

    def having(self, link: MqttLink) -> NeighbourLink | None:
        """The link that ``link`` belongs to, if it leads to a neighbour."""
        observer = link.observer
        return observer.neighbour if isinstance(observer, NeighbourObserver) else None

    def hang_up(self, conn: ConnId) -> None:
        """Close ``conn`` for good."""
        neighbour = self._by_conn.pop(conn, None)
        if neighbour is not None:
            self._end(neighbour)

    def _make_room(self) -> bool:
        """Whether one more broker may be dialled back; the oldest that never answered gives way."""
        dialled = [n for n in self.all if n.dialled_for is not None]
        if len(dialled) < DIALLED_BACK_MAX:
            return True
        for neighbour in dialled:
            if not (neighbour.connected if neighbour.outbox_of is None else neighbour.reached):
                self._end(neighbour)
                return True
        return False

    def hang_up_dialled(self, neighbour_id: BrokerId) -> None:
        """Forget the address dialled for ``neighbour_id`` before, if any."""
        for neighbour in [n for n in self.all if n.dialled_for == neighbour_id]:
            self._end(neighbour)

    def call_off(self, address: str) -> None:
        """Stop retrying ``address``, unless a neighbour was dialled back there."""
        for neighbour in [n for n in self.all if (n.address, n.dialled_for) == (address, None)]:
            self._end(neighbour)

    def _end(self, neighbour: NeighbourLink) -> None:
        self.all.remove(neighbour)
        self._log_down(neighbour)
        for task in neighbour.tasks:
            task.cancel()

    def _log_down(self, neighbour: NeighbourLink) -> None:
        """Publish what the Will would: after an orderly exit there is none."""
        if self._notifies(neighbour) and neighbour.data.connected:
            topic = connection_state_topic(self.settings.broker_id)
            neighbour.data.write_packets((PublishPacket(topic, LINK_DOWN, retain=True).write(),), 1)

    @property
    def behind(self) -> bool:
        """Whether messages for us on neighbours' brokers may wait for us to read them."""
        return any(neighbour.takes_outbox and neighbour.control.behind for neighbour in self.all)

    def on_subscribed(self, neighbour: NeighbourLink) -> None:
        """Report a neighbour when both connections are up and subscribed."""
        if not neighbour.connected:
            return
        assert neighbour.conn is not None, "the Will was made before the connection"
        if neighbour.conn in self._by_conn:
            return
        self._by_conn[neighbour.conn] = neighbour
        self.tell(
            NeighbourConnected(
                neighbour.conn,
                neighbour.address,
                neighbour.expected_id,
                neighbour.cost,
                neighbour.takes_outbox,
            )
        )

    def on_down(self, neighbour: NeighbourLink) -> None:
        """Report that a neighbour is disconnected: one connection is lost."""
        if neighbour.conn is None or self._by_conn.pop(neighbour.conn, None) is None:
            return
        neighbour.control.drop("its data connection is lost")  # a new connection has a new ConnId
        self.tell(NeighbourDisconnected(neighbour.conn))


@dataclass(eq=False, repr=False)
class NeighbourObserver(LinkObserver):
    """Passes on the events of the two connections to one address."""

    neighbour: NeighbourLink
    links: NeighbourLinks

    def on_subscribed(self, link: MqttLink) -> None:
        self.links.on_subscribed(self.neighbour)

    def on_down(self, link: MqttLink, reason: str) -> None:
        self.links.on_down(self.neighbour)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        if self.neighbour.takes_outbox and self.links.on_fetched is not None:
            self.links.on_fetched(self.neighbour, link, publishes)

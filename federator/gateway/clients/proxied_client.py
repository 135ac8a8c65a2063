"""One client of the gateway: its session, its connection, and its connection to a broker.

The session makes all decisions about MQTT. This module carries out its orders.

Source: docs/gateway.md.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol, assert_never

import structlog

from federator.config.gateway import GatewaySettings
from federator.gateway import wire
from federator.gateway.brokers import Broker
from federator.gateway.clients.broker_search import BrokerSearch
from federator.gateway.clients.draining_connection import DrainingConnection
from federator.gateway.clients.ports import PACKETS_AT_ONCE, End, Port
from federator.gateway.metrics import GatewayCounters
from federator.gateway.session import orders
from federator.gateway.session.healing import missed, missed_before
from federator.gateway.session.journal import Journal, Publication
from federator.gateway.session.orders import State
from federator.gateway.session.session import ClientSession
from federator.gateway.session.subscriptions import plain
from federator.gateway.wire.kinds import MalformedError, Packet, Reason
from federator.protocol.types import BrokerId, Millis
from federator.runtime.process.antechamber import Place
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms

HEAL_GRACE_S: Final = 0.03
"""Wait for what is under way when a subscription is made: it need not be sent twice."""

REST_MS: Final = 1_000
"""What was published before a subscription was known may still arrive, from a broker's queue."""

UNMUTE_S: Final = 2.0
"""How long retained values that our own requests bring are kept from a client."""

UNRELEASED_MAX: Final = 20
"""QoS 2 publications of the largest size that may wait for their PUBREL, beyond the buffer; as many
as Mosquitto takes of any size."""

MOVE_SETTLES_WITHIN: Final = 0.5
"""Part of the time for which publications are remembered; the rest is for sending missed ones."""

QUIET_S: Final = 2.0
"""How long a client to be moved, and its broker, may take to acknowledge what is open."""
QUIET_POLL_S: Final = 0.01

HUNG_PINGS: Final = 4
"""After at most so many ping intervals of silence a broker counts as dead."""

KEEP_ALIVES: Final = 1.5
"""So many keep-alive intervals of silence end a client."""

KEEP_ALIVE_SLACK_MS: Final = 1_000
"""How much later than its broker, which counts too, we end a silent client."""

_log = structlog.get_logger()


class GatewayContext(Protocol):
    """What a client needs of the gateway."""

    settings: GatewaySettings
    counters: GatewayCounters
    journal: Journal
    brokers: dict[BrokerId, Broker]
    clients: dict[str, "ProxiedClient"]

    @property
    def serving(self) -> list[Broker]:
        """The brokers that take clients now."""

    @property
    def every(self) -> list["ProxiedClient"]:
        """All clients of this gateway."""

    def proxy(
        self, connect: wire.Connect, end: End, splitter: wire.Splitter, place: Place
    ) -> "ProxiedClient":
        """Make the proxied client for a client, or for one of its legs."""

    def brokers_for(self, client: "ProxiedClient", avoid: Iterable[BrokerId]) -> Sequence[Broker]:
        """Brokers that could take the client, best first, without those in ``avoid``."""

    def unsafe_of(self, client: "ProxiedClient", lost: BrokerId | None) -> list[bytes]:
        """Take the publications that ``lost`` acknowledged to the client and may have lost."""

    def acknowledged(self, client: "ProxiedClient", broker: BrokerId) -> None:
        """Keep the packets that ``broker`` acknowledged, as noted in the client's session."""

    def ask_settled(
        self,
        client: "ProxiedClient",
        filters: tuple[str, ...],
        on_end: Callable[[bool], None],
        *,
        within_s: float,
    ) -> None:
        """Call ``on_end`` with whether the federation knows ``filters``, or at a time limit."""

    def ask_until_known(
        self,
        client: "ProxiedClient",
        filters: tuple[str, ...],
        on_end: Callable[[], None],
        *,
        within_s: float,
    ) -> None:
        """Call ``on_end`` when the federation knows ``filters`` of a client that is moving."""

    def fetch_missed(self, client: "ProxiedClient") -> None:
        """Ask the agent of the client's new broker for what the client may have missed."""

    def on_early(self, client: "ProxiedClient", count: int) -> None:
        """Count bytes that ``client`` sent before a broker accepted it; may dismiss the client."""

    def on_accepted(self, client: "ProxiedClient") -> None:
        """Note that its first broker accepted ``client``."""

    def on_attached(self, client: "ProxiedClient", *, moved: bool) -> None:
        """Note that a broker accepted ``client``; ``moved``: it came from another broker."""

    def on_left(self, client: "ProxiedClient", broker: Broker) -> None:
        """Note that ``client`` no longer uses ``broker``."""

    def on_gone(self, client: "ProxiedClient") -> None:
        """Forget ``client``, which is gone for good."""


class ProxiedClient:
    """One client, or one leg of a split client.

    Attributes:
        broker: The broker to which the client is attached, or was last.
        moves: How often it was attached to another broker.
        lost_ms: When its broker was lost; reset once what it missed since then was fetched.
        heard_ms: When it last sent anything.
    """

    def __init__(
        self, context: GatewayContext, session: ClientSession, port: End, splitter: wire.Splitter
    ) -> None:
        self.session = session
        self.broker: Broker | None = None
        self.moves = 0
        self.lost_ms: Millis | None = None
        self.heard_ms = monotonic_ms()
        failover, clients = context.settings.failover, context.settings.clients
        self._context = context
        self._attempt_s = failover.attempt_ms / 1000
        self._settle_s = failover.settle_ms / 1000
        self._move_s = max(self._settle_s, failover.recent_ms / 1000 * MOVE_SETTLES_WITHIN)
        self._room = clients.buffer_bytes_max
        self._unseen_topics = failover.heal == "all"
        self._unreleased_max = self._room + UNRELEASED_MAX * clients.packet_bytes_max
        self._client_port = port
        self._from_client = splitter
        self._broker_port: Port | None = None
        self._from_broker = _broker_splitter()
        self._generation = 0
        self._paused = False
        self._catches_up = False
        self._attempt_end = DeadlineTimer(self._give_up_attempt)
        self._draining: DrainingConnection | None = None
        self._former: Broker | None = None  # the broker before the current move
        find = partial(context.brokers_for, self)
        self._search = BrokerSearch(self, find, hold_s=failover.hold_ms / 1000)

    @property
    def client_id(self) -> str:
        """The client's id at its broker."""
        return self.session.connect.client_id

    @property
    def moving(self) -> bool:
        """Whether its old broker still serves it, in a planned move."""
        return self._draining is not None

    def start(self) -> None:
        self._search.start(lost=None)

    def go_on(self, block: bytes, packets: list[Packet]) -> None:
        """Take what the client sent behind its CONNECT in the same read."""
        self._take(lambda: (block, packets))
        self.flush()

    def _take(self, read: Callable[[], tuple[bytes, list[Packet]]]) -> None:
        try:
            self.session.from_client(*read(), monotonic_ms())
            if self._from_client.fault is not None:
                raise self._from_client.fault
        except MalformedError as error:
            self.session.refuse(error)

    def on_data(self, port: End, data: bytes) -> bool:
        """Take what either end sent; return whether to call again with no data."""
        session, more = self.session, False
        if port is self._client_port:
            self.heard_ms = monotonic_ms()
            if not session.accepted:
                self._context.on_early(self, len(data))
                if session.state is State.GONE:
                    return False
            self._take(lambda: self._from_client.feed(data))
            more = self._from_client.more
        elif port is self._broker_port:
            accepted = session.accepted
            try:
                session.from_broker(*self._from_broker.feed(data), monotonic_ms())
                if self._from_broker.fault is not None:
                    raise self._from_broker.fault
            except MalformedError as error:
                broker = self.broker.id if self.broker else None
                _log.warning("gateway.broker_malformed", broker=broker, reason=str(error)[:200])
                session.on_broker_lost()
            more = self._from_broker.more
            if session.accepted and not accepted:
                self._context.on_accepted(self)
            if self._attempt_end.is_set and session.attached:
                self._on_attached()
        self.flush()
        return more

    def on_lost(self, port: End, error: Exception | None) -> None:
        """Report to the session that an end is gone."""
        if port is self._client_port:
            if self.session.catching_up:  # handle what it sent before first
                asyncio.get_running_loop().call_soon(self.on_lost, port, error)
                return
            self.session.on_client_lost()
        elif port is self._broker_port:
            self._broker_port = None
            self.session.on_broker_lost()
        self.flush()

    def on_room(self, port: End, room: bool) -> None:
        """Read from the other end only while this one has room."""
        if port is self._client_port and self._broker_port is not None:
            self._broker_port.block("client", not room)
        elif port is self._broker_port:
            self._client_port.block("broker", not room)

    def subscribe_again(self) -> int:
        """Repeat the client's subscriptions, so that the broker logs them; return how many."""
        made = self.session.subscribe_again()
        if made:
            asyncio.get_running_loop().call_later(UNMUTE_S, self._unmute)
            self.flush()
        return made

    def dismiss(self, reason: Reason, text: str, *, with_will: bool = True) -> None:
        """End the client and send it the reason."""
        self.session.dismiss(reason, text, with_will=with_will)
        self.flush()

    def refuse(self, error: MalformedError) -> None:
        """End the client, which broke the protocol."""
        self.session.refuse(error)
        self.flush()

    def broker_is_dead(self) -> None:
        """Leave a broker that does not answer, though the connection is open."""
        if self._broker_port is not None:
            self._break_off()
            silent_ms = HUNG_PINGS * self._context.settings.failover.ping_ms
            self.lost_ms = self.lost_ms or Millis(monotonic_ms() - silent_ms)
            self.session.on_broker_lost()
            self.flush()

    def check_keep_alive(self) -> None:
        """End a client that has been silent for one and a half times its keep-alive."""
        if self._client_port.open and self.is_too_silent(after_ms=-KEEP_ALIVE_SLACK_MS):
            self.dismiss(Reason.KEEP_ALIVE_TIMEOUT, "silent for too long")

    def is_too_silent(self, *, after_ms: int) -> bool:
        """Whether its silence, ``after_ms`` from now, exceeds its keep-alive."""
        silent_ms = monotonic_ms() + after_ms - self.heard_ms
        keep_alive_ms = self.session.connect.keep_alive * 1_000
        return 0 < keep_alive_ms * KEEP_ALIVES <= silent_ms

    async def move(self) -> bool:
        """Attach the client to another broker while its own serves; return whether that has begun.

        The old broker is drained until the new one serves. The client is not moved now while
        deliveries or publications stay unacknowledged.
        """
        session, loop = self.session, asyncio.get_running_loop()
        port, old = self._broker_port, self.broker
        if session.state is not State.LIVE or not session.up.open or port is None or old is None:
            return False
        session.up.open = False
        port.block("moving", True)
        end_s = loop.time() + QUIET_S
        while loop.time() < end_s:
            if not session.unanswered or self._broker_port is not port:
                break
            await asyncio.sleep(QUIET_POLL_S)
        port.block("moving", False)
        if self._broker_port is not port or session.state is not State.LIVE:
            return False
        if session.unanswered:
            session.up.open = True
            self.flush()
            return False
        self._broker_port = None
        self._draining = DrainingConnection(port, self._from_broker, session.version, old)
        session.on_broker_lost()
        self.flush()
        return True

    def flush(self) -> None:
        """Send the session's packets to both ends, and carry out its orders."""
        session, up = self.session, self.session.up
        if (up.acknowledged or up.acknowledged_again) and self.broker is not None:
            self._context.acknowledged(self, self.broker.id)
        if session.to_broker:
            if self._broker_port is not None:
                self._broker_port.write(session.to_broker)
            session.to_broker.clear()
        if session.to_client:
            self._client_port.write(session.to_client)
            session.to_client.clear()
        if session.orders:
            due, session.orders[:] = [*session.orders], []
            for order in due:
                self._perform(order)
        if session.catching_up and not self._catches_up:
            self._catches_up = True
            # the end of the connection, too, must wait behind these packets
            self._client_port.block("early", True)
            asyncio.get_running_loop().call_soon(self._catch_up)
        room = self._room
        if self._paused or up.bytes_held > room or session.backlog.bytes_held > room:
            self._pause()

    def _catch_up(self) -> None:
        """Forward some packets that waited for a broker; the rest follow in later turns."""
        self._catches_up = False
        self.session.catch_up(at_once=PACKETS_AT_ONCE)
        self.flush()
        self._client_port.block("early", self._catches_up)

    def _pause(self) -> None:
        """Stop reading from a client while too much of what it sent waits for a broker.

        Publications that wait for the client's own PUBREL are no reason to stop, for the PUBREL may
        be unread; but they have a limit, too.
        """
        session, up, room = self.session, self.session.up, self._room
        if session.state is State.GONE:
            return
        waits = up.bytes_held > room and not up.waits_for_client
        self._paused = waits or session.backlog.bytes_held > room
        self._client_port.block("pending", self._paused)
        if up.bytes_held > self._unreleased_max:
            text = f"{up.bytes_held} bytes of QoS 2 publications that it does not release"
            self.dismiss(Reason.RECEIVE_MAXIMUM_EXCEEDED, text)

    def _perform(self, order: orders.Order) -> None:
        match order:
            case orders.Dismiss(reason, text):
                name = Reason(reason).name.lower()
                _log.info("gateway.dismissed", client=self.client_id, reason=name, text=text)
                self._context.counters.dismissed += 1
                self._client_port.close()
            case orders.LeaveBroker(with_will):
                self._end(with_will=with_will)
            case orders.FindBroker(refused):
                self._find(refused=refused)
            case orders.AskSettled(token, filters):
                on_end = partial(self._on_settled, token)
                self._context.ask_settled(self, filters, on_end, within_s=self._settle_s)
            case orders.Heal():
                self._context.fetch_missed(self)
                asyncio.get_running_loop().call_later(HEAL_GRACE_S, self._heal)
            case _:
                assert_never(order)

    def _end(self, *, with_will: bool) -> None:
        self._client_port.close()
        if self._broker_port is not None:
            (self._broker_port.abort if with_will else self._broker_port.close)()
            self._broker_port = None
        self._attempt_end.set(None)
        self._search.cancel()
        self._end_draining()
        self._count(None)
        self.session.backlog.clear()  # frees memory at once, as does the next line
        self._from_client = wire.Splitter(firsts=wire.FROM_CLIENT)
        self._context.on_gone(self)

    def _heal(self) -> None:
        session = self.session
        if session.state is not State.HEALING:
            return
        given = missed_before(
            session,
            self._context.journal.between(Millis(0), session.restored_ms),
            drained=self._draining.take(session.restored_ms) if self._draining is not None else (),
            unseen_topics=self._unseen_topics,
        )
        session.heal(given, monotonic_ms())
        self._context.counters.healed += len(given)
        asyncio.get_running_loop().call_later(UNMUTE_S, self._unmute)
        if self._draining is not None and session.subscriptions.granted:
            filters = plain(session.subscriptions.granted)
            on_end = partial(self._on_move_known, self.moves)
            self._context.ask_until_known(self, filters, on_end, within_s=self._move_s)
        else:
            self._end_draining()
        self.flush()

    def _on_move_known(self, move: int) -> None:
        asyncio.get_running_loop().call_later(REST_MS / 1_000, self._heal_rest, move)

    def _heal_rest(self, move: int) -> None:
        """Send what was published during a planned move, and close the old connection.

        This happens late: a publication may also arrive by itself, and must not arrive twice.
        """
        if self._draining is None or move != self.moves or self.session.state is not State.LIVE:
            return
        since_ms, now_ms = Millis(self.session.restored_ms + 1), monotonic_ms()
        ours = self._context.journal.between(since_ms, Millis(now_ms - REST_MS))
        self.give_missed(ours, since_ms=since_ms, drained=self._draining.take(now_ms))
        self._end_draining()

    def give_missed(
        self,
        publications: Iterable[Publication],
        *,
        since_ms: Millis,
        drained: Iterable[bytes] = (),
    ) -> None:
        """Send the client those ``publications``, made since then, that it did not receive.

        ``drained`` is what its old broker delivered.
        """
        session = self.session
        if session.state is State.LIVE and session.subscriptions.granted:
            given = missed(
                session,
                publications,
                drained=drained,
                unseen_topics=self._unseen_topics,
                since_ms=since_ms,
            )
            session.give(given, monotonic_ms())
            self._context.counters.healed += len(given)
            self.flush()

    def _on_settled(self, token: int, known: bool) -> None:
        self._context.counters.settled += known
        self._context.counters.unsettled += not known
        self.session.on_settled(token)
        self.flush()

    def _end_draining(self) -> None:
        if self._draining is not None:
            draining, self._draining = self._draining, None
            draining.close()
            if draining.broker is not self.broker:
                self._context.on_left(self, draining.broker)

    def _unmute(self) -> None:
        if self.session.state is State.LIVE:
            self.session.down.unmute()  # the retained values from our own requests have arrived

    def _find(self, *, refused: bool) -> None:
        self._attempt_end.set(None)
        self._break_off()
        if refused and self.broker is not None:
            self._search.on_failed(self.broker)
        if self.session.accepted and self._former is None:
            self._former = self.broker
            if self._draining is None:
                self.lost_ms = self.lost_ms or monotonic_ms()
        lost = None if refused else self.broker  # a broker that refuses is alive
        self._search.start(lost=lost, generation=self._generation)

    async def attach_to(self, broker: Broker, *, lost: Broker | None) -> bool:
        """Connect to ``broker`` and introduce the client; its answer comes later.

        ``lost`` is dead, and may have lost what it acknowledged. Returns whether the search may
        end:
        ``broker`` is connected, or the client is gone.
        """
        port = Port(self)
        if not await broker.connect(port, within_s=self._attempt_s):
            port.abort()
            return False
        there = self._client_port.open or self.session.will_only
        if self.session.state is State.GONE or not there:
            port.abort()
            return True
        self._broker_port = port
        self._from_broker = _broker_splitter()
        port.block("client", self._client_port.full)
        kept: list[bytes] = []
        if self.session.accepted:  # before that, the client id is unproven
            kept = self._context.unsafe_of(self, lost.id if lost is not None else None)
        self._count(broker)
        self._generation = broker.generation
        self._attempt_end.set(Millis(monotonic_ms() + int(self._attempt_s * 1_000)))
        self.session.join(kept)
        self.flush()
        return True

    def _break_off(self) -> None:
        if self._broker_port is not None:
            self._broker_port.abort()
            self._broker_port = None

    def _count(self, broker: Broker | None) -> None:
        """Count the client at ``broker`` only."""
        if self.broker is not None:
            self.broker.clients -= 1
        if broker is not None:
            broker.clients += 1
            self.broker = broker

    def _give_up_attempt(self) -> None:
        if self.broker is not None:
            self._search.on_failed(self.broker)
        self._break_off()
        self.session.on_broker_lost()
        self.flush()

    def _on_attached(self) -> None:
        self._attempt_end.set(None)
        former, self._former = self._former, None
        self.moves += former is not None
        self._search.on_attached()
        self._context.on_attached(self, moved=former is not None)
        if former is not None and former is not self.broker and self._draining is None:
            self._context.on_left(self, former)


def _broker_splitter() -> wire.Splitter:
    return wire.Splitter(firsts=wire.FROM_SERVER, at_once=PACKETS_AT_ONCE)

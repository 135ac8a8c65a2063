"""Attends one client: its session, its connection, and its connection to a broker.

No decision about MQTT is made here; those are the session's. This carries its orders out, and finds
the brokers it asks for.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, assert_never

import structlog

from federator.gateway.brokers import Broker
from federator.gateway.healing import missed
from federator.gateway.journal import Publication
from federator.gateway.orders import (
    AskSettled,
    Dismiss,
    FindBroker,
    Heal,
    HealRest,
    LeaveBroker,
    Order,
)
from federator.gateway.ports import End, Port
from federator.gateway.session import Session, State
from federator.gateway.tail import Tail
from federator.gateway.wire import FROM_SERVER, MalformedError, Packet, Reason, Splitter
from federator.protocol.types import BrokerId, Millis

HEAL_GRACE_S: Final = 0.03
"""What is on its way when a subscription stands may still come, and needs not be given twice."""

REST_S: Final = 1.0
"""Likewise what was published before everybody knew of it: it may wait in a broker's queue."""

UNMUTE_S: Final = 2.0
"""How long retained values that our own requests bring are kept from a client."""

RETRY_S: Final = 0.1
"""When every broker failed, until they are tried again."""

SPURNED_MAX: Final = 3
"""How often brokers may close the connection of a client that they have not accepted, and live."""

UNRELEASED_MAX: Final = 20
"""QoS 2 publications of the largest size that may wait for their PUBREL, beyond the buffer; as many
as Mosquitto takes of any size."""

QUIET_S: Final = 2.0
"""How long a client that is to be moved may take to answer what it got, and its broker."""

QUIET_POLL_S: Final = 0.01
EXACT_MS: Final = 1_000
"""How long what was published at QoS 2 may take to come by itself."""

EARLY_MS: Final = 2_000
"""How much sooner than its PUBACK a publication may come to a subscriber."""

KEEP_ALIVES: Final = 1.5
"""Of silence end a client."""

KEEP_ALIVE_SLACK_MS: Final = 1_000
"""The broker, which counts too, is to say it first."""

BROKER_SECOND_MS: Final = 1_000
"""A broker counts silence in whole seconds: so much sooner it may end a client."""

_log = structlog.get_logger()


class House(Protocol):
    """What an attendant needs of the gateway."""

    packet_bytes_max: int
    buffer_bytes_max: int
    attempt_s: float
    hold_s: float
    unseen_topics: bool

    def now_ms(self) -> Millis:
        """Monotonic time."""

    def brokers_for(self, attendant: "Attendant", avoid: Iterable[BrokerId]) -> Sequence[Broker]:
        """Brokers that could take the client, best first, without ``avoid``."""

    def unsafe_of(self, attendant: "Attendant", lost: BrokerId | None) -> list[bytes]:
        """What its lost broker acknowledged and may have taken along. Told once."""

    def acknowledged(self, attendant: "Attendant", broker: BrokerId) -> None:
        """Its broker acknowledged what stands in its session."""

    def recently(self, from_ms: Millis, to_ms: Millis) -> Iterable[Publication]:
        """What clients published lately, by when it was acknowledged."""

    def ask_settled(
        self, attendant: "Attendant", token: int, filters: tuple[str, ...], *, client_waits: bool
    ) -> None:
        """Call ``on_settled(token)`` in time."""

    def on_attached(self, attendant: "Attendant", *, moved: bool) -> None:
        """A broker accepted the client, which has ``moved`` there from another."""

    def on_left(self, attendant: "Attendant", broker: Broker) -> None:
        """The client has nothing to do with ``broker`` any more."""

    def on_gone(self, attendant: "Attendant") -> None:
        """It is over."""

    def on_healed(self, attendant: "Attendant", given: int) -> None:
        """The client was given so many publications that it missed."""

    def on_dismissed(self, attendant: "Attendant") -> None:
        """We ended the client's connection."""


class Attendant:
    """One client.

    Args:
        house: The gateway.
        session: The client's.
        port: Its connection.
        splitter: Of what it sends.

    Attributes:
        broker: To which it is attached, or was last.
        moves: How often it was attached to another broker.
    """

    def __init__(self, house: House, session: Session, port: End, splitter: Splitter) -> None:
        self.session = session
        self.broker: Broker | None = None
        self.moves = 0
        self.heard_ms = house.now_ms()
        self._house = house
        self._client = port
        self._from_client = splitter
        self._broker_port: Port | None = None
        self._from_broker = Splitter(limit=2**31, firsts=FROM_SERVER)
        self._generation = 0
        self._braked = False
        self._spurned = 0
        self._seeking: asyncio.Task[None] | None = None
        self._patience: asyncio.Handle | None = None
        self._away_since_s: float | None = None
        self._failed: dict[BrokerId, float] = {}
        self._tail: Tail | None = None
        self._left: Broker | None = None  # where it was attached last

    @property
    def client_id(self) -> str:
        """The client's."""
        return self.session.connect.client_id

    def start(self) -> None:
        """Find the first broker."""
        self._seek(lost=None)

    def go_on(self, block: bytes, packets: list[Packet]) -> None:
        """The client sent more than its CONNECT at once."""
        try:
            self.session.from_client(block, packets, self._house.now_ms())
            if self._from_client.fault is not None:
                raise self._from_client.fault
        except MalformedError as error:
            self.session.refuse(error)
        self.flush()

    # -- what ports tell --------------------------------------------------------------------------

    def on_data(self, port: End, data: bytes) -> None:
        """Either end sent something."""
        now_ms = self._house.now_ms()
        session = self.session
        if port is self._client:
            self.heard_ms = now_ms
            try:
                block, packets = self._from_client.feed(data)
                session.from_client(block, packets, now_ms)
                if self._from_client.fault is not None:
                    raise self._from_client.fault
            except MalformedError as error:
                session.refuse(error)
        elif port is self._broker_port:
            try:
                block, packets = self._from_broker.feed(data)
                session.from_broker(block, packets, now_ms)
                if self._from_broker.fault is not None:
                    raise self._from_broker.fault
            except MalformedError as error:
                broker = self.broker.id if self.broker else None
                _log.warning("gateway.broker_malformed", broker=broker, reason=str(error)[:200])
                session.on_broker_lost()
            if self._patience is not None and session.attached:
                self._on_attached()
        self.flush()

    def on_lost(self, port: End, error: Exception | None) -> None:
        """Either end is gone."""
        if port is self._client:
            self.session.on_client_lost()
        elif port is self._broker_port:
            self._broker_port = None
            self.session.on_broker_lost()
        self.flush()

    def on_room(self, port: End, room: bool) -> None:
        """Either end takes more, or no more: the other is read accordingly."""
        if port is self._client and self._broker_port is not None:
            self._broker_port.block("client", not room)
        elif port is self._broker_port:
            self._client.block("broker", not room)

    # -- what the gateway tells -------------------------------------------------------------------

    def on_settled(self, token: int) -> None:
        """See ``Session.on_settled``."""
        self.session.on_settled(token)
        self.flush()

    def dismiss(self, reason: Reason, text: str, *, with_will: bool = True) -> None:
        """End it, and tell the client why."""
        self.session.dismiss(reason, text, with_will=with_will)
        self.flush()

    def broker_is_dead(self) -> None:
        """Its broker does not answer though the connection stands."""
        if self._broker_port is not None:
            self._broker_port.abort()
            self._broker_port = None
            self.session.on_broker_lost()
            self.flush()

    def check_keep_alive(self, now_ms: Millis) -> None:
        """End a client that has been silent for one and a half times its keep-alive."""
        if self._client.open and self._is_too_silent(Millis(now_ms - KEEP_ALIVE_SLACK_MS)):
            self.dismiss(Reason.KEEP_ALIVE_TIMEOUT, "silent for too long")

    def _is_too_silent(self, at_ms: Millis) -> bool:
        keep_alive_ms = self.session.connect.keep_alive * 1_000
        return keep_alive_ms > 0 and at_ms - self.heard_ms >= keep_alive_ms * KEEP_ALIVES

    async def move(self) -> bool:
        """Attach it to another broker while its own still serves; tell whether that has begun.

        What the old one has for it comes to the tail, until the new one serves. A client that
        leaves deliveries without an answer, or a broker publications, is not moved now.
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
            session.go_on(self._house.now_ms())
            self.flush()
            return False
        self._broker_port = None
        self._tail = Tail(port, self._from_broker, session.version, old, self._house.now_ms)
        session.on_broker_lost()
        self.flush()
        return True

    # -- orders -----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what the session has for its ends, and do what it orders."""
        session = self.session
        up = session.up
        if (up.acknowledged or up.acknowledged_again) and self.broker is not None:
            self._house.acknowledged(self, self.broker.id)
        if session.to_broker:
            if self._broker_port is not None:
                self._broker_port.write(session.to_broker)
            session.to_broker.clear()
        if session.to_client:
            self._client.write(session.to_client)
            session.to_client.clear()
        if session.orders:
            orders = [*session.orders]
            session.orders.clear()
            for order in orders:
                self._perform(order)
        room = self._house.buffer_bytes_max
        if self._braked or up.bytes > room or session.pending_bytes > room:
            self._brake(room)

    def _brake(self, room: int) -> None:
        """Read no more of a client while too much of what it sent waits for a broker.

        What waits for its own PUBREL is no reason to stop, for PUBREL may be among the unread; but
        there is an end to that, too.
        """
        session, up = self.session, self.session.up
        if session.state is State.GONE:
            return
        waits = up.bytes > room and not up.waits_for_client
        self._braked = waits or session.pending_bytes > room
        self._client.block("pending", self._braked)
        if up.bytes > room + UNRELEASED_MAX * self._house.packet_bytes_max:
            text = f"{up.bytes} bytes of QoS 2 publications that it does not release"
            self.dismiss(Reason.RECEIVE_MAXIMUM_EXCEEDED, text)

    def _perform(self, order: Order) -> None:
        match order:
            case Dismiss(reason, text):
                name = Reason(reason).name.lower()
                _log.info("gateway.dismissed", client=self.client_id, reason=name, text=text)
                self._house.on_dismissed(self)
                self._client.close()
            case LeaveBroker(with_will):
                self._end(with_will=with_will)
            case FindBroker(refused):
                self._find(refused=refused)
            case AskSettled(token, filters, client_waits):
                self._house.ask_settled(self, token, filters, client_waits=client_waits)
            case Heal():
                asyncio.get_running_loop().call_later(HEAL_GRACE_S, self._heal)
            case HealRest():
                loop, until_ms = asyncio.get_running_loop(), self._house.now_ms()
                loop.call_later(REST_S, self._heal_rest, self.moves, until_ms)
            case _:
                assert_never(order)

    def _end(self, *, with_will: bool) -> None:
        self._client.close()
        if self._broker_port is not None:
            (self._broker_port.abort if with_will else self._broker_port.close)()
            self._broker_port = None
        for waiting in (self._patience, self._seeking):
            if waiting is not None and waiting is not asyncio.current_task():
                waiting.cancel()
        self._leave_tail()
        self._count(None)
        self._house.on_gone(self)

    def _heal(self) -> None:
        session = self.session
        if session.state is not State.HEALING:
            return
        # What was published later is likely to come by the new broker, too; at QoS 2 it must not
        # come twice, so what is recent is left to the lookout.
        publications = [
            each
            for each in self._house.recently(Millis(0), session.restored_ms)
            if each.qos == 1 or each.acked_ms < session.restored_ms - EXACT_MS
        ]
        tail = self._tail.take(session.restored_ms) if self._tail is not None else ()
        given = missed(session, publications, tail=tail, unseen_topics=self._house.unseen_topics)
        session.heal(given, self._house.now_ms())
        self._house.on_healed(self, len(given))
        asyncio.get_running_loop().call_later(UNMUTE_S, self._unmute)
        if not session.subscriptions.granted:
            self._leave_tail()
        self.flush()

    def _heal_rest(self, move: int, until_ms: Millis) -> None:
        """Give what was published while not everybody knew of the new broker's subscriptions.

        It comes late, but it may also come by itself, and then it must not come twice.
        """
        session = self.session
        if session.state is not State.LIVE or move != self.moves:
            return
        tail = self._tail.take(self._house.now_ms()) if self._tail is not None else ()
        qos = (1, 2) if self._tail is not None else (1,)
        self.give_missed(Millis(session.restored_ms + 1), until_ms, qos=qos, tail=tail)
        self._leave_tail()

    def give_missed(
        self,
        from_ms: Millis,
        to_ms: Millis,
        *,
        qos: Sequence[int],
        tail: Sequence[bytes] = (),
        others: Sequence[Publication] = (),
    ) -> None:
        """Give the client what others got acknowledged in this time, if nobody did.

        Args:
            from_ms: The beginning of that time,
            to_ms: and its end.
            qos: At which it was published.
            tail: What its old broker gave it since.
            others: What clients of other gateways published then.
        """
        session = self.session
        if session.state is State.LIVE and session.subscriptions.granted:
            ours = (each for each in self._house.recently(from_ms, to_ms) if each.qos in qos)
            given = missed(
                session,
                [*ours, *others],
                tail=tail,
                unseen_topics=self._house.unseen_topics,
                since_ms=Millis(from_ms - EARLY_MS),
            )
            session.give(given, self._house.now_ms())
            self._house.on_healed(self, len(given))
            self.flush()

    def _leave_tail(self) -> None:
        if self._tail is not None:
            tail, self._tail = self._tail, None
            tail.close()
            if tail.broker is not self.broker:
                self._house.on_left(self, tail.broker)

    def _unmute(self) -> None:
        if self.session.state is State.LIVE:
            self.session.unmute()

    # -- brokers ----------------------------------------------------------------------------------

    def _find(self, *, refused: bool) -> None:
        loop = asyncio.get_running_loop()
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._broker_port is not None:
            self._broker_port.abort()
            self._broker_port = None
        if refused and self.broker is not None:
            self._failed[self.broker.id] = loop.time()
        if self.session.accepted and self._left is None:
            self._left = self.broker
        self._seek(lost=None if refused else self.broker)  # who refuses is not dead

    def _seek(self, *, lost: Broker | None) -> None:
        running = self._seeking is not None and not self._seeking.done()
        if running and self._seeking is not asyncio.current_task():
            return
        name = f"broker for {self.client_id}"
        self._seeking = asyncio.create_task(self._seek_broker(lost), name=name)

    async def _seek_broker(self, lost: Broker | None) -> None:
        loop = asyncio.get_running_loop()
        if self._away_since_s is None:
            self._away_since_s = loop.time()
        end_s = self._away_since_s + self._house.hold_s
        moving = self._tail is not None
        if moving and lost is not None:
            self._failed[lost.id] = loop.time()
            lost = None
        if lost is not None and lost.id not in self._failed:
            if self.session.accepted and await lost.lives(self._generation):
                # It lives, and ended this client's connection alone: its word.
                if self._is_too_silent(Millis(self._house.now_ms() + BROKER_SECOND_MS)):
                    self.dismiss(Reason.KEEP_ALIVE_TIMEOUT, "silent for too long")
                else:
                    self.dismiss(Reason.UNSPECIFIED, "its broker closed its connection")
                return
            self._failed[lost.id] = loop.time()
        if not self.session.accepted and lost is not None:
            # Nothing of it was there, and that it was not let in is no proof that a broker died.
            self._spurned += 1
            if self._spurned >= SPURNED_MAX and await lost.lives(self._generation):
                self.dismiss(Reason.UNSPECIFIED, "its broker closes its connection")
                return
            lost = None
        while self.session.state is not State.GONE:
            for broker in self._house.brokers_for(self, self._failed):
                if await self._try(broker, lost):
                    return
                self._failed[broker.id] = loop.time()
            if loop.time() > end_s:
                text = f"no broker within {self._house.hold_s:g} s"
                self.dismiss(
                    Reason.SERVER_UNAVAILABLE if not self.session.accepted else Reason.SERVER_BUSY,
                    text,
                )
                return
            await asyncio.sleep(RETRY_S)
            self._failed.clear()

    async def _try(self, broker: Broker, lost: Broker | None) -> bool:
        """Connect to ``broker`` and introduce the client; its answer comes later."""
        loop = asyncio.get_running_loop()
        port = Port(self)
        address = broker.address
        try:
            async with asyncio.timeout(self._house.attempt_s):
                await loop.create_connection(
                    lambda: port, address.host, address.port, ssl=broker.tls
                )
        except (OSError, TimeoutError, UnicodeError):
            port.abort()
            return False
        if self.session.state is State.GONE:
            port.abort()
            return True
        if not self._client.open and not self.session.will_only:
            port.abort()
            return True
        self._broker_port = port
        self._from_broker = Splitter(limit=2**31, firsts=FROM_SERVER)
        port.block("client", self._client.full)
        kept = self._house.unsafe_of(self, lost.id if lost is not None else None)
        self._count(broker)
        self._generation = broker.generation
        self._patience = loop.call_later(self._house.attempt_s, self._lose_patience)
        self.session.join(kept)
        self.flush()
        return True

    def _count(self, broker: Broker | None) -> None:
        """We are with ``broker`` now."""
        if self.broker is not None:
            self.broker.clients -= 1
        if broker is not None:
            broker.clients += 1
            self.broker = broker

    def _lose_patience(self) -> None:
        self._patience = None
        if self.broker is not None:
            self._failed[self.broker.id] = asyncio.get_running_loop().time()
        if self._broker_port is not None:
            self._broker_port.abort()
            self._broker_port = None
        self.session.on_broker_lost()
        self.flush()

    def _on_attached(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        left, self._left = self._left, None
        self.moves += left is not None
        self._away_since_s = None
        self._failed.clear()
        self._house.on_attached(self, moved=left is not None)
        if left is not None and left is not self.broker and self._tail is None:
            self._house.on_left(self, left)

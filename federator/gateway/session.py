"""One client of the gateway, as a machine: packets in, packets and orders out.

The idea: a client's connection to its broker is its own, made with its own CONNECT, so while both
live the gateway has nothing to decide and passes blocks on as they came, noting what is in flight.
When the broker's connection is lost the client keeps its own. What it sends waits, its pings are
answered, and on the next broker everything a broker knew of it is said again: CONNECT,
subscriptions, publications without an answer. What it missed in between is given to it before new
deliveries pass (``healing`` decides what that is).

    GREETING -> JOINING -> LIVE        the first broker: its CONNACK is the client's
    LIVE -> AWAY -> JOINING -> RESTORING -> HEALING -> LIVE         another broker
    any -> GONE

Upstream opens as soon as the new broker has what the old one owed (``Upstream.open``), downstream
when the subscriptions are known everywhere and what was missed is given.

Source: docs/gateway.md; OASIS MQTT 5.0 and 3.1.1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final

from federator.gateway.downstream import Downstream
from federator.gateway.orders import (
    AskSettled,
    Dismiss,
    FindBroker,
    Heal,
    HealRest,
    LeaveBroker,
    Order,
)
from federator.gateway.recent import Allowance, Recent
from federator.gateway.subscriptions import Subscriptions, receive_max
from federator.gateway.upstream import PASS, SWALLOW, Upstream
from federator.gateway.wire import (
    PINGRESP,
    QOS,
    V5,
    Connack,
    Connect,
    Kind,
    MalformedError,
    Packet,
    Property,
    Reason,
    check_ping,
    number_in,
    only,
    publish_id,
    read_ack,
    read_answer,
    read_connack,
    read_disconnect,
    read_publish,
    read_subscribe,
    read_unsubscribe,
    with_value,
    without,
    write_connack,
    write_connect,
    write_disconnect,
)
from federator.protocol.filters import without_share
from federator.protocol.types import Millis

PUBLISHED_TOPICS_MAX: Final = 1_024
"""Topics of one client that are told in session reports; more are not."""

PUBLISHED_TOPIC_CHARACTERS_MAX: Final = 256
"""Longer ones are not told."""

RECEIVE_MAX: Final = 65_535

RECENT_MS: Final = 5_000
RECENT_BYTES_MAX: Final = 67_108_864
"""What is remembered where nobody says how much."""

_PUBLISH: Final = int(Kind.PUBLISH)  # looked at for every packet: a member costs 50 ns
_PUBACK: Final = int(Kind.PUBACK)

_ELSEWHERE: Final = frozenset(
    {Reason.SERVER_UNAVAILABLE, Reason.SERVER_BUSY, Reason.SERVER_SHUTTING_DOWN, 0x9C, 0x9D}
)
"""What a broker says that cannot have the client, when another one may."""


class State(Enum):
    """How a session stands with its broker."""

    GREETING = "greeting"
    JOINING = "joining"
    RESTORING = "restoring"
    HEALING = "healing"
    LIVE = "live"
    AWAY = "away"
    GONE = "gone"


class Session:
    """One client, from its CONNECT to its end.

    Whoever drives it sends, after each call, what stands in ``to_client`` and ``to_broker`` and
    carries out ``orders``, and empties them.

    Args:
        connect: The client's CONNECT, with the client id it is known by.
        assigned: We chose that client id.
        packet_bytes_max: The largest packet the client may send.
        filters_max: Subscriptions it may hold.
        settles: A SUBACK waits until the federation knows the subscription.
        recent: Where its deliveries are remembered.

    Attributes:
        state: Where it stands.
        publishes: Topics it published on.
        restored_ms: When the next one had its subscriptions.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        assigned: bool = False,
        packet_bytes_max: int = 1_048_576,
        filters_max: int = 10_000,
        settles: bool = True,
        recent: Recent | None = None,
    ) -> None:
        self.connect = connect
        self.version = connect.version
        self.state = State.GREETING
        self.to_client: list[bytes] = []
        self.to_broker: list[bytes] = []
        self.orders: list[Order] = []
        self.publishes: set[str] = set()
        self.restored_ms = Millis(0)
        self.accepted = False
        self.subscriptions = Subscriptions(connect.version, filters_max=filters_max)
        self.up = Upstream(connect.version)
        self.down = Downstream(
            connect.version,
            receive_max(connect.properties, connect.version, RECEIVE_MAX),
            to_client=self.to_client,
            to_broker=self.to_broker,
        )
        self.recent = recent or Recent(RECENT_MS, Allowance(RECENT_BYTES_MAX))
        self.pending: list[bytes] = []
        self.pending_bytes = 0
        self._assigned = assigned
        self._packet_bytes_max = packet_bytes_max
        self._settles = settles
        self._answers: dict[int, bytes] = {}  # SUBACKs that wait, by token
        self._token = 0
        self._restoring = 0  # the token of what a new broker was asked for again
        self._pings = 0
        self._leaving = False  # the client said goodbye, behind what waits
        self._will_only = False
        self._kept: tuple[bytes, ...] = ()

    @property
    def persistent(self) -> bool:
        """Whether its broker keeps its session when it leaves."""
        return self.connect.session_expiry_s > 0

    @property
    def attached(self) -> bool:
        """Whether a broker has accepted it, and is there."""
        return self.state in (State.LIVE, State.RESTORING, State.HEALING)

    @property
    def unanswered(self) -> int:
        """Publications and deliveries that the other side has not answered."""
        return self.up.in_flight + self.down.unacknowledged

    def go_on(self, now_ms: Millis) -> None:
        """Let the client's packets pass again."""
        self.up.open = True
        self._catch_up(now_ms)

    # -- the client ---------------------------------------------------------------------------

    def from_client(self, block: bytes, packets: list[Packet], now_ms: Millis) -> None:
        """The client sent ``packets``, which lie back to back in ``block``.

        Raises:
            MalformedError: One must not be; those before it are handled. Call ``refuse``.
        """
        if not self.up.open:
            for packet in packets:
                self._wait(block, packet)
            return
        version, topics, out = self.version, self.publishes, self.to_broker
        start = 0
        for packet in packets:
            first = packet[0]
            if first & 0xF0 == _PUBLISH:
                topic, packet_id, _, alias = read_publish(block, packet, version)
                if alias:
                    raise MalformedError(Reason.TOPIC_ALIAS_INVALID, "a topic alias: 0 are allowed")
                if topic not in topics:
                    self._note_topic(topic)
                if packet_id:
                    self.up.publish(packet_id, block[packet[1] : packet[3]])
                continue
            if first == _PUBACK and packet[3] - packet[2] == 2:
                body = packet[2]
                if self.down.take_puback(block[body] << 8 | block[body + 1]):
                    continue
            answer = self._other(block, packet)
            if answer is PASS:
                continue
            if start < packet[1]:
                out.append(block[start : packet[1]])
            if answer:
                out.append(answer)
            start = packet[3]
        if packets and start < packets[-1][3]:
            out.append(block[start : packets[-1][3]])

    def _note_topic(self, topic: str) -> None:
        short = len(topic) <= PUBLISHED_TOPIC_CHARACTERS_MAX
        if short and len(self.publishes) < PUBLISHED_TOPICS_MAX:
            self.publishes.add(topic)

    def _wait(self, block: bytes, packet: Packet) -> None:
        """Take a packet of a client that has no broker just now."""
        kind = packet[0] & 0xF0
        if kind == Kind.PINGREQ and self.accepted:
            check_ping(packet)
            self.to_client.append(PINGRESP)
        elif self._is_urgent(kind, block, packet):
            answer = self._other(block, packet)
            self.to_broker.append(block[packet[1] : packet[3]] if answer is PASS else answer)
        else:
            self._leaving = self._leaving or kind == Kind.DISCONNECT
            whole = block[packet[1] : packet[3]]
            self.pending.append(whole)
            self.pending_bytes += len(whole)

    def _is_urgent(self, kind: int, block: bytes, packet: Packet) -> bool:
        """Whether a packet need not wait for those that wait."""
        match kind:
            case Kind.PUBACK | Kind.PUBREC | Kind.PUBCOMP:
                return True
            case Kind.PUBREL:
                return self.up.has(read_ack(block, packet, self.version)[0])
            case Kind.DISCONNECT:
                return not self.pending
            case _:
                return False

    def _other(self, block: bytes, packet: Packet) -> bytes:
        """Any packet of the client but PUBLISH: what the broker hears."""
        kind, version = packet[0] & 0xF0, self.version
        match kind:
            case Kind.PUBACK | Kind.PUBREC | Kind.PUBCOMP:
                return self.down.on_ack(kind, *read_ack(block, packet, version))
            case Kind.PUBREL:
                return self.up.release(read_ack(block, packet, version)[0])
            case Kind.SUBSCRIBE:
                request = read_subscribe(block, packet, version)
                self.subscriptions.ask(block[packet[1] : packet[3]], request)
                self.down.unmute()
            case Kind.UNSUBSCRIBE:
                wish = read_unsubscribe(block, packet, version)
                self.subscriptions.ask(block[packet[1] : packet[3]], wish)
            case Kind.PINGREQ:
                check_ping(packet)
                self._pings += 1
            case Kind.DISCONNECT:
                return self._on_farewell(block, packet)
            case _:
                name = Kind(kind).name
                raise MalformedError(Reason.PROTOCOL_ERROR, f"{name} on a running connection")
        return PASS

    def _on_farewell(self, block: bytes, packet: Packet) -> bytes:
        farewell = read_disconnect(block, packet, self.version)
        with_will = farewell.reason == Reason.DISCONNECT_WITH_WILL
        if not self.attached:
            self._end_away(with_will=with_will)
            return SWALLOW
        self.state = State.GONE
        self.orders.append(LeaveBroker(with_will=False))  # the broker reads the reason itself
        return PASS

    def on_client_lost(self) -> None:
        """The client's connection broke: its will is due."""
        if self.state is State.GONE:
            return
        if self.attached:
            self.state = State.GONE
            if self._leaving:
                self.to_broker.append(write_disconnect(0, self.version))
            self.orders.append(LeaveBroker(with_will=not self._leaving))
        else:
            self._end_away(with_will=not self._leaving)

    def _end_away(self, *, with_will: bool) -> None:
        """The client ends while it has no broker: its will needs one all the same."""
        if with_will and self.accepted and self.connect.will is not None:
            self._will_only = True
            self.pending.clear()
            self.pending_bytes = 0
            return
        self.state = State.GONE
        self.orders.append(LeaveBroker(with_will=False))

    @property
    def will_only(self) -> bool:
        """The client is gone, and a broker is looked for that publishes its will."""
        return self._will_only

    def refuse(self, error: MalformedError) -> None:
        """The client broke the rules."""
        self.dismiss(error.reason, str(error), with_will=True)

    def dismiss(self, reason: Reason, text: str, *, with_will: bool = True) -> None:
        """Tell the client why, and end."""
        if self.state is State.GONE:
            return
        if not self.accepted:
            refused = Connack(session_present=False, reason=reason)
            self.to_client.append(write_connack(refused, self.version))
        elif self.version == V5 and not self._will_only:
            self.to_client.append(write_disconnect(reason, self.version))
        self.orders.append(Dismiss(reason, text))
        self.state = State.GONE
        self.orders.append(LeaveBroker(with_will=with_will))

    # -- the broker ---------------------------------------------------------------------------

    def join(self, kept: Iterable[bytes] = ()) -> None:
        """A connection to a broker stands: introduce the client.

        Args:
            kept: What the lost broker acknowledged and may have taken along, oldest first.
        """
        self.state = State.JOINING
        self._kept = (*self._kept, *kept)
        self.to_broker.append(self._greeting())

    def _greeting(self) -> bytes:
        connect = self.connect
        if self.accepted and self.persistent and connect.clean:
            connect = replace(connect, clean=False)
        if self.version == V5:
            properties = without(connect.properties, Property.TOPIC_ALIAS_MAXIMUM)
            connect = replace(connect, properties=properties)
        return write_connect(connect)

    def from_broker(self, block: bytes, packets: list[Packet], now_ms: Millis) -> None:
        """The broker sent ``packets``.

        Raises:
            MalformedError: It does not deserve its clients. Call ``on_broker_lost``.
        """
        out, down = self.to_client, self.down
        start = 0
        acknowledged = False
        for packet in packets:
            first = packet[0]
            is_publish = first & 0xF0 == _PUBLISH
            if is_publish and down.plain and self.state is State.LIVE:
                if first & QOS:
                    packet_id, id_at = publish_id(block, packet)
                    down.note(packet_id)
                    self.recent.see(block[packet[2] + 2 : id_at])
                    acknowledged = True
                continue
            if first == _PUBACK and packet[3] - packet[2] == 2:
                body = packet[2]
                if self.up.take_puback(block[body] << 8 | block[body + 1]):
                    continue
            if start < packet[1]:  # in order: what follows may send something itself
                out.append(block[start : packet[1]])
            start = packet[3]
            if is_publish:
                if self.state in (State.GREETING, State.JOINING, State.AWAY):
                    raise MalformedError(Reason.PROTOCOL_ERROR, "PUBLISH before CONNACK")
                if first & QOS:
                    acknowledged = True
                    self.recent.see(block[packet[2] + 2 : publish_id(block, packet)[1]])
                down.deliver(block[packet[1] : packet[3]])
                continue
            answer = self._from_broker(block, packet, now_ms)
            if answer is PASS:
                start = packet[1]
            elif answer:
                out.append(answer)
        if packets and start < packets[-1][3]:
            out.append(block[start : packets[-1][3]])
        if acknowledged:
            self.recent.add(block, now_ms)

    def _from_broker(self, block: bytes, packet: Packet, now_ms: Millis) -> bytes:
        """Any packet of the broker but PUBLISH: what the client hears."""
        kind, version, up = packet[0] & 0xF0, self.version, self.up
        if self.state is State.JOINING:
            return self._on_connack(block, packet, now_ms)
        match kind:
            case Kind.PUBACK:
                answer = up.on_puback(*read_ack(block, packet, version), self.to_broker)
            case Kind.PUBREC:
                answer = up.on_pubrec(*read_ack(block, packet, version), self.to_broker)
            case Kind.PUBCOMP:
                packet_id, _ = read_ack(block, packet, version)
                answer = up.on_pubcomp(packet_id, self.to_broker)
            case Kind.PUBREL:
                answer = self.down.on_pubrel(*read_ack(block, packet, version))
            case Kind.SUBACK:
                answer = self._on_suback(block, packet, now_ms)
            case Kind.UNSUBACK:
                self.subscriptions.on_unsuback(read_answer(block, packet, version))
                answer = PASS
            case Kind.PINGRESP:
                answer = PASS if self._pings else SWALLOW
                self._pings = max(0, self._pings - 1)
            case Kind.DISCONNECT:
                answer = self._on_dismissal(block, packet)
            case _:
                raise MalformedError(Reason.PROTOCOL_ERROR, f"{Kind(kind).name} from a broker")
        if up.open and self.pending:
            self._catch_up(now_ms)
        return answer

    def _on_connack(self, block: bytes, packet: Packet, now_ms: Millis) -> bytes:
        if packet[0] & 0xF0 != Kind.CONNACK:
            raise MalformedError(Reason.PROTOCOL_ERROR, "no CONNACK")
        connack = read_connack(block, packet, self.version)
        if connack.reason:
            return self._on_refusal(connack)
        if self._will_only:
            self.state = State.GONE
            self.orders.append(LeaveBroker(with_will=True))
            return SWALLOW
        takes = receive_max(connack.properties, self.version, RECEIVE_MAX)
        if not self.accepted:
            self.accepted = True
            self.state = State.LIVE
            self.up.resume((), receive_max=takes, out=self.to_broker)
            self.to_client.append(self._welcome(connack))
            self._catch_up(now_ms)
            return SWALLOW
        self.state = State.RESTORING
        self.down.hold()
        self.to_broker.extend(self.subscriptions.again(self.up.ids))
        self.to_broker.extend(self.subscriptions.unanswered)
        if self.subscriptions.asks:
            self.down.unmute()
        kept, self._kept = self._kept, ()
        self.up.resume(kept, receive_max=takes, out=self.to_broker)
        if self.subscriptions.restored:
            self._restored(now_ms)
        if self.up.open:
            self._catch_up(now_ms)
        return SWALLOW

    def _welcome(self, connack: Connack) -> bytes:
        """The first broker's CONNACK, as far as it holds for the gateway."""
        properties = without(connack.properties, Property.TOPIC_ALIAS_MAXIMUM)
        if self.version == V5:
            limit = number_in(properties, Property.MAXIMUM_PACKET_SIZE, self._packet_bytes_max)
            limit = min(limit, self._packet_bytes_max)
            properties = with_value(properties, Property.MAXIMUM_PACKET_SIZE, limit)
            if self._assigned:
                name = Property.ASSIGNED_CLIENT_ID
                properties = with_value(properties, name, self.connect.client_id)
        return write_connack(replace(connack, properties=properties), self.version)

    def _on_refusal(self, connack: Connack) -> bytes:
        if self.accepted or connack.reason in _ELSEWHERE:
            self.state = State.AWAY if self.accepted else State.GREETING
            self.orders.append(FindBroker(refused=True))
            return SWALLOW
        self.to_client.append(write_connack(connack, self.version))
        self.state = State.GONE
        self.orders.append(Dismiss(Reason.NOT_AUTHORIZED, "its broker refused it"))
        self.orders.append(LeaveBroker(with_will=False))
        return SWALLOW

    def _on_suback(self, block: bytes, packet: Packet, now_ms: Millis) -> bytes:
        answer = read_answer(block, packet, self.version)
        try:
            filters = self.subscriptions.on_suback(answer, now_ms)
        except MalformedError as error:
            self.dismiss(error.reason, str(error))
            return SWALLOW
        if filters is None:
            if self.subscriptions.restored and self.state is State.RESTORING:
                self._restored(now_ms)
            return SWALLOW
        if not filters or not self._settles:
            return PASS
        self._token += 1
        self._answers[self._token] = block[packet[1] : packet[3]]
        self.orders.append(AskSettled(self._token, _plain(filters), client_waits=True))
        return SWALLOW

    def _restored(self, now_ms: Millis) -> None:
        """The new broker has the subscriptions; the federation may not know yet."""
        self.state = State.HEALING
        self.restored_ms = now_ms
        self.orders.append(Heal())
        filters = _plain(self.subscriptions.granted)
        if filters:
            self._token += 1
            self._restoring = self._token
            self.orders.append(AskSettled(self._token, filters, client_waits=False))

    def on_settled(self, token: int) -> None:
        """The filters of ``AskSettled`` are known, or the bound has passed."""
        answer = self._answers.pop(token, None)
        if self.state is State.GONE:
            return
        if answer:
            self.to_client.append(answer)
        elif token == self._restoring and self.attached:
            self.orders.append(HealRest())

    def unmute(self) -> None:
        """Retained values that our own requests brought have come by now."""
        self.down.unmute()

    def heal(self, missed: Sequence[bytes], now_ms: Millis) -> None:
        """Give the client what it missed, and let deliveries pass."""
        if self.state is State.HEALING:
            self.state = State.LIVE
            self.down.heal(missed)
            self._remember(missed, now_ms)

    def give(self, missed: Sequence[bytes], now_ms: Millis) -> None:
        """Give the client what it missed, besides what comes."""
        if self.state is State.LIVE:
            self.down.give(missed)
            self._remember(missed, now_ms)

    def _remember(self, given: Sequence[bytes], now_ms: Millis) -> None:
        if given:
            self.recent.add(b"".join(given), now_ms)

    def _on_dismissal(self, block: bytes, packet: Packet) -> bytes:
        farewell = read_disconnect(block, packet, self.version, from_client=False)
        if farewell.reason in _ELSEWHERE:
            self.on_broker_lost()
            return SWALLOW
        reason = Reason(farewell.reason)
        self.to_client.append(write_disconnect(reason, self.version, farewell.properties))
        self.state = State.GONE
        self.orders.append(Dismiss(reason, "its broker disconnected it"))
        self.orders.append(LeaveBroker(with_will=False))
        return SWALLOW

    def on_broker_lost(self) -> None:
        """The connection to the broker is gone, or never came to stand."""
        if self.state is State.GONE:
            return
        self.to_broker.clear()
        if not self.accepted:
            self.state = State.GREETING
        elif self.state is not State.AWAY:
            self.to_client.extend([PINGRESP] * self._pings)
            self._pings = 0
            if self.state is not State.JOINING:
                self.up.lose()
                self.down.lose()
                self.subscriptions.lose()
            self.state = State.AWAY
        self.orders.append(FindBroker(refused=False))

    def _catch_up(self, now_ms: Millis) -> None:
        """Pass on what the client sent while it had no broker."""
        packets, self.pending, self.pending_bytes = self.pending, [], 0
        for at, packet in enumerate(packets):
            try:
                self.from_client(packet, [only(packet)], now_ms)
            except MalformedError as error:
                self.refuse(error)
            if self.state is State.GONE:
                return
            if not self.up.open:
                self.pending = [*self.pending, *packets[at + 1 :]]
                self.pending_bytes = sum(map(len, self.pending))
                return


def _plain(filters: Iterable[str]) -> tuple[str, ...]:
    """Filters without ``$share/...``, each once."""
    return tuple(dict.fromkeys(without_share(filter) for filter in filters))

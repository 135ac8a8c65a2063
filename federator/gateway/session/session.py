"""One client of the gateway, as a machine: packets in, packets and orders out.

A client has its own connection to its broker, made with its own CONNECT. So while both are up, the
gateway forwards blocks unchanged and notes what is in flight. When the broker's connection is lost,
the client keeps its own: its packets wait, its pings are answered, and the next broker gets
everything again: CONNECT, subscriptions, unacknowledged publications. What the client missed in
between is sent before new deliveries pass (``healing`` decides what that is).

    GREETING -> JOINING -> LIVE        the first broker: its CONNACK is the client's
    LIVE -> AWAY -> JOINING -> RESTORING -> HEALING -> LIVE         another broker
    any -> GONE

Upstream opens once the new broker has what the old one owed (``Upstream.open``), downstream when
the subscriptions are known everywhere and missed publications are sent.

Source: docs/gateway.md; OASIS MQTT 5.0 and 3.1.1.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from federator.gateway import wire
from federator.gateway.session import orders
from federator.gateway.session.downstream import Downstream
from federator.gateway.session.handshake import (
    ELSEWHERE,
    connack_for_client,
    connect_for_broker,
    dismissal,
    named_by_broker,
    packet_max,
)
from federator.gateway.session.orders import State
from federator.gateway.session.recent_deliveries import RecentDeliveries
from federator.gateway.session.subscriptions import Subscriptions, receive_max
from federator.gateway.session.topic_aliases import TopicAliases
from federator.gateway.session.upstream import PASS, SWALLOW, Backlog, Upstream
from federator.gateway.wire.kinds import TOLD, Kind, MalformedError, Packet, Reason
from federator.protocol.types import Millis

_PUBLISH: Final = int(Kind.PUBLISH)  # read for every packet: an enum member costs 50 ns
_PUBACK: Final = int(Kind.PUBACK)
_read_ack = partial(wire.read_ack, from_client=False)


class ClientSession:
    """One client, from its CONNECT to its end.

    After each call, the driver sends ``to_client`` and ``to_broker``, carries out ``orders``, and
    empties all three.

    Args:
        connect: The client's CONNECT, with the client id in use.
        settles: Whether a SUBACK is held until the federation knows the subscription.

    Attributes:
        accepted: Whether a broker has ever accepted the client.
        backlog: Packets that wait while the client has no broker.
        restored_ms: When the next broker had the client's subscriptions.
        will_only: The client is gone, and needs a broker only to publish its will.
    """

    def __init__(
        self,
        connect: wire.Connect,
        *,
        packet_bytes_max: int = 1_048_576,
        filters_max: int = 10_000,
        settles: bool = True,
        recent: RecentDeliveries | None = None,
    ) -> None:
        self.connect = connect
        self.version = connect.version
        self.state = State.GREETING
        self.to_client: list[bytes] = []
        self.to_broker: list[bytes] = []
        self.orders: list[orders.Order] = []
        self.restored_ms = Millis(0)
        self.accepted = False
        self.will_only = False
        self.backlog = Backlog()
        self.subscriptions = Subscriptions(connect.version, filters_max=filters_max)
        self.aliases = TopicAliases()
        self.up = Upstream(connect.version)
        self.down = Downstream(
            connect.version,
            receive_max(connect.properties, connect.version),
            to_client=self.to_client,
            to_broker=self.to_broker,
        )
        self.recent = recent or RecentDeliveries()
        self._packet_bytes_max = packet_bytes_max
        self._settles = settles
        self._pings = 0
        self._kept: tuple[bytes, ...] = ()

    @property
    def persistent(self) -> bool:
        """Whether the broker keeps the session after a disconnect."""
        return self.connect.session_expiry_s > 0

    @property
    def attached(self) -> bool:
        """Whether a broker has accepted the client, and is connected."""
        return self.state in (State.LIVE, State.RESTORING, State.HEALING)

    @property
    def unanswered(self) -> int:
        """Publications and deliveries without their last acknowledgement."""
        return self.up.in_flight + self.down.unacknowledged

    def subscribe_again(self) -> int:
        """Repeat the granted subscriptions, so that the broker logs them; return how many.

        Not while the client waits for an answer of its own: the broker logs that anyway, and its
        retained values must not be mistaken for repeated ones.
        """
        subscriptions = self.subscriptions
        waits = self.backlog.packets or not self.up.open
        if self.state is not State.LIVE or waits or subscriptions.busy:
            return 0
        if subscriptions.granted:
            self.down.mute()
            self.to_broker.extend(subscriptions.again(self.up.ids))
        return len(subscriptions.granted)

    @property
    def catching_up(self) -> bool:
        """Whether ``catch_up`` can forward packets: some wait, and there is a broker."""
        return self.up.open and bool(self.backlog.packets) and self.state is not State.GONE

    # -- the client ---------------------------------------------------------------------------

    def from_client(self, block: bytes, packets: list[Packet], now_ms: Millis) -> None:
        """Take what the client sent: ``packets`` lie back to back in ``block``.

        Raises:
            MalformedError: A packet breaks the protocol; those before it are handled. Call
                ``refuse``.
        """
        if not self.up.open or self.backlog.packets:
            for packet in packets:
                self._wait(block, packet)
            return
        self._pass_on(block, packets)

    def _pass_on(self, block: bytes, packets: list[Packet]) -> None:
        version, topics, out = self.version, self.up.topics, self.to_broker
        start = 0
        for packet in packets:
            first = packet[0]
            if first & 0xF0 == _PUBLISH:
                header = wire.read_publish(block, packet, version)
                topic, packet_id, _, alias = header
                whole = b""
                if alias:
                    topic, whole = self.aliases.resolve(block, packet, header)
                    if start < packet[1]:
                        out.append(block[start : packet[1]])
                    out.append(whole)
                    start = packet[3]
                if topic not in topics:
                    self.up.note_topic(topic)
                if packet_id:
                    self.up.publish(packet_id, whole or block[packet[1] : packet[3]])
                continue
            if first == _PUBACK and packet[3] - packet[2] == 2:
                body = packet[2]
                if self.down.take_puback(block[body] << 8 | block[body + 1]):
                    continue
            answer = self._take_packet(block, packet)
            if answer is PASS:
                continue
            if start < packet[1]:
                out.append(block[start : packet[1]])
            if answer:
                out.append(answer)
            start = packet[3]
        if packets and start < packets[-1][3]:
            out.append(block[start : packets[-1][3]])

    def _wait(self, block: bytes, packet: Packet) -> None:
        """Take a packet while there is no broker, or while earlier packets wait."""
        kind = packet[0] & 0xF0
        if kind == Kind.PINGREQ and self.accepted:
            wire.check_ping(packet)
            self.to_client.append(wire.PINGRESP)
        elif self.backlog.lets_pass(block, packet, self.version, self.up):
            answer = self._take_packet(block, packet)
            self.to_broker.append(block[packet[1] : packet[3]] if answer is PASS else answer)
        else:
            self.backlog.add(block[packet[1] : packet[3]], kind)

    def _take_packet(self, block: bytes, packet: Packet) -> bytes:
        """Call ``_on_client_packet``; set on its error whether the client gets the reason."""
        try:
            return self._on_client_packet(block, packet)
        except MalformedError as error:
            error.told = packet[0] & 0xF0 in TOLD
            raise

    def _on_client_packet(self, block: bytes, packet: Packet) -> bytes:
        """Take any client packet but PUBLISH; return what to send to the broker."""
        kind, version = packet[0] & 0xF0, self.version
        match kind:
            case Kind.PUBACK | Kind.PUBREC | Kind.PUBCOMP:
                return self.down.on_ack(kind, *wire.read_ack(block, packet, version))
            case Kind.PUBREL:
                return self.up.release(wire.read_ack(block, packet, version)[0])
            case Kind.SUBSCRIBE | Kind.UNSUBSCRIBE:
                request = wire.read_request(block, packet, version)
                self.subscriptions.ask(block[packet[1] : packet[3]], request)
                if kind == Kind.SUBSCRIBE:
                    self.down.unmute()
            case Kind.PINGREQ:
                wire.check_ping(packet)
                self._pings += 1
            case Kind.DISCONNECT:
                return self._on_disconnect(block, packet)
            case _:
                name = Kind(kind).name
                raise MalformedError(f"{name} on a running connection", Reason.PROTOCOL_ERROR)
        return PASS

    def _on_disconnect(self, block: bytes, packet: Packet) -> bytes:
        reason, properties = wire.read_disconnect(block, packet, self.version)
        expiry_s = wire.number_in(properties, wire.Property.SESSION_EXPIRY, 0)
        if expiry_s and not self.persistent:
            text = f"DISCONNECT makes a session last {expiry_s} s that was not to last"
            self.dismiss(Reason.PROTOCOL_ERROR, text)
            return SWALLOW
        if not self.attached:
            self._end_away(with_will=reason == Reason.DISCONNECT_WITH_WILL)
            return SWALLOW
        self.state = State.GONE
        # The broker reads the reason in the DISCONNECT.
        self.orders.append(orders.LeaveBroker(with_will=False))
        return PASS

    def on_client_lost(self) -> None:
        """End, for the client's connection broke: its will is due."""
        if self.state is State.GONE:
            return
        if self.attached:
            self.state = State.GONE
            if self.backlog.leaving:
                self.to_broker.append(wire.write_disconnect(0, self.version))
            self.orders.append(orders.LeaveBroker(with_will=not self.backlog.leaving))
        else:
            self._end_away(with_will=not self.backlog.leaving)

    def _end_away(self, *, with_will: bool) -> None:
        """End without a broker; a will still needs one."""
        if with_will and self.accepted and self.connect.will is not None:
            self.will_only = True
            self.backlog.clear()
            return
        self.state = State.GONE
        self.orders.append(orders.LeaveBroker(with_will=False))

    def refuse(self, error: MalformedError) -> None:
        """Dismiss the client, which broke the protocol."""
        self.dismiss(error.reason, str(error), told=error.told)

    def dismiss(
        self, reason: Reason, text: str, *, with_will: bool = True, told: bool = True
    ) -> None:
        """End; send the client the reason if ``told``."""
        if self.state is State.GONE:
            return
        if told and not self.will_only:
            packet = dismissal(reason, self.version, accepted=self.accepted)
            fits = len(packet) <= packet_max(self.connect)
            self.to_client.extend([packet] if packet and fits else [])
        self._end(reason, text, with_will=with_will)

    def _end(self, reason: Reason, text: str, *, with_will: bool = False) -> None:
        self.state = State.GONE
        self.orders += orders.Dismiss(reason, text), orders.LeaveBroker(with_will=with_will)

    # -- the broker ---------------------------------------------------------------------------

    def join(self, kept: Iterable[bytes] = ()) -> None:
        """Introduce the client to a broker on an open connection.

        ``kept``: what the lost broker acknowledged and may have lost, oldest first.
        """
        self.state = State.JOINING
        self._kept = (*self._kept, *kept)
        self.to_broker.append(connect_for_broker(self.connect, again=self.accepted))

    def from_broker(self, block: bytes, packets: list[Packet], now_ms: Millis) -> None:
        """Take what the broker sent.

        Raises:
            MalformedError: A packet breaks the protocol. Call ``on_broker_lost``.
        """
        out, down = self.to_client, self.down
        start = 0
        acknowledged = False
        for packet in packets:
            first = packet[0]
            is_publish = first & 0xF0 == _PUBLISH
            if is_publish and down.plain and self.state is State.LIVE:
                if first & wire.QOS:
                    packet_id, id_at = wire.publish_id(block, packet)
                    down.note(packet_id, first & wire.QOS_2)
                    self.recent.see(block[packet[2] + 2 : id_at])
                    acknowledged = True
                continue
            if first == _PUBACK and packet[3] - packet[2] == 2:
                body = packet[2]
                if self.up.take_puback(block[body] << 8 | block[body + 1]):
                    continue
            if start < packet[1]:  # in order: the handlers below may send packets of their own
                out.append(block[start : packet[1]])
            start = packet[3]
            if is_publish:
                if self.state in (State.GREETING, State.JOINING, State.AWAY):
                    raise MalformedError("PUBLISH before CONNACK", Reason.PROTOCOL_ERROR)
                if first & wire.QOS:
                    acknowledged = True
                    self.recent.see(block[packet[2] + 2 : wire.publish_id(block, packet)[1]])
                down.deliver(block[packet[1] : packet[3]])
                continue
            answer = self._on_broker_packet(block, packet, now_ms)
            if answer is PASS:
                start = packet[1]
            elif answer:
                out.append(answer)
        if packets and start < packets[-1][3]:
            out.append(block[start : packets[-1][3]])
        if acknowledged:
            self.recent.add(block, now_ms)

    def _on_broker_packet(self, block: bytes, packet: Packet, now_ms: Millis) -> bytes:
        """Take any broker packet but PUBLISH; return what to send to the client."""
        kind, version, up = packet[0] & 0xF0, self.version, self.up
        if self.state is State.JOINING:
            return self._on_connack(block, packet, now_ms)
        match kind:
            case Kind.PUBACK:
                packet_id, reason = _read_ack(block, packet, version)
                answer = up.finish(packet_id, reason < Reason.UNSPECIFIED, self.to_broker)
            case Kind.PUBREC:
                answer = up.on_pubrec(*_read_ack(block, packet, version), self.to_broker)
            case Kind.PUBCOMP:
                packet_id, _ = _read_ack(block, packet, version)
                answer = up.finish(packet_id, True, self.to_broker)
            case Kind.PUBREL:
                answer = self.down.on_pubrel(*_read_ack(block, packet, version))
            case Kind.SUBACK:
                answer = self._on_suback(block, packet, now_ms)
            case Kind.UNSUBACK:
                self.subscriptions.on_unsuback(wire.read_answer(block, packet, version))
                answer = PASS
            case Kind.PINGRESP:
                answer = PASS if self._pings else SWALLOW
                self._pings = max(0, self._pings - 1)
            case Kind.DISCONNECT:
                answer = self._on_broker_disconnect(block, packet)
            case _:
                raise MalformedError(f"{Kind(kind).name} from a broker", Reason.PROTOCOL_ERROR)
        return answer

    def _on_connack(self, block: bytes, packet: Packet, now_ms: Millis) -> bytes:
        if packet[0] & 0xF0 != Kind.CONNACK:
            raise MalformedError("no CONNACK", Reason.PROTOCOL_ERROR)
        connack = wire.read_connack(block, packet, self.version)
        if connack.reason:
            return self._on_refusal(connack)
        if self.will_only:
            self.state = State.GONE
            self.orders.append(orders.LeaveBroker(with_will=True))
            return SWALLOW
        takes = receive_max(connack.properties, self.version)
        if not self.accepted:
            self.accepted = True
            self.connect = named_by_broker(self.connect, connack)
            self.state = State.LIVE
            self.up.resume((), receive_max=takes, out=self.to_broker)
            self.aliases.allow(connack.properties)
            limit = self._packet_bytes_max
            self.to_client.append(connack_for_client(connack, self.connect, packet_bytes_max=limit))
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
        return SWALLOW

    def _on_refusal(self, connack: wire.Connack) -> bytes:
        if self.accepted or connack.reason in ELSEWHERE:
            self.state = State.AWAY if self.accepted else State.GREETING
            self.orders.append(orders.FindBroker(refused=True))
            return SWALLOW
        self.to_client.append(wire.write_connack(connack, self.version))
        self._end(Reason.NOT_AUTHORIZED, "its broker refused it")
        return SWALLOW

    def _on_suback(self, block: bytes, packet: Packet, now_ms: Millis) -> bytes:
        answer = wire.read_answer(block, packet, self.version)
        try:
            filters = self.subscriptions.on_suback(answer, now_ms)
        except MalformedError as error:
            if self.state is not State.LIVE:  # when LIVE, earlier grants stand in any case
                self.dismiss(error.reason, str(error))
            return SWALLOW
        if filters is None:
            if self.subscriptions.restored and self.state is State.RESTORING:
                self._restored(now_ms)
            return SWALLOW
        if not filters or not self._settles:
            return PASS
        self.orders.append(self.down.hold_suback(block[packet[1] : packet[3]], filters))
        return SWALLOW

    def _restored(self, now_ms: Millis) -> None:
        """Heal: the new broker has the subscriptions."""
        self.state = State.HEALING
        self.restored_ms = now_ms
        self.orders.append(orders.Heal())

    def on_settled(self, token: int) -> None:
        """Go on after ``AskSettled``: its filters are known, or the time limit has passed."""
        if self.state is not State.GONE:
            self.down.release_suback(token)

    def heal(self, missed: Sequence[bytes], now_ms: Millis) -> None:
        """Send the client what it missed, and let deliveries pass."""
        if self.state is State.HEALING:
            self.state = State.LIVE
            self.give(missed, now_ms)

    def give(self, missed: Sequence[bytes], now_ms: Millis) -> None:
        """Send the client what it missed, while deliveries pass."""
        if self.state is State.LIVE:
            self.down.give(missed)
            if missed:
                self.recent.add(b"".join(missed), now_ms)

    def _on_broker_disconnect(self, block: bytes, packet: Packet) -> bytes:
        reason, properties = wire.read_disconnect(block, packet, self.version, from_client=False)
        if reason in ELSEWHERE:
            self.on_broker_lost()
            return SWALLOW
        self.to_client.append(wire.write_disconnect(reason, self.version, properties))
        self._end(Reason(reason), "its broker disconnected it")
        return SWALLOW

    def on_broker_lost(self) -> None:
        """Ask for another broker: the connection to this one ended, or never opened."""
        if self.state is State.GONE:
            return
        self.to_broker.clear()
        if not self.accepted:
            self.state = State.GREETING
        elif self.state is not State.AWAY:
            self.to_client.extend([wire.PINGRESP] * self._pings)
            self._pings = 0
            if self.state is not State.JOINING:
                self.up.lose()
                self.down.lose()
                self.subscriptions.lose()
            self.state = State.AWAY
        self.orders.append(orders.FindBroker(refused=False))

    def catch_up(self, *, at_once: int) -> None:
        """Forward packets that waited for a broker, at most ``at_once``."""
        for _ in range(at_once):
            if not self.catching_up:
                return
            packet = self.backlog.take()
            try:
                self._pass_on(packet, [wire.only(packet)])
            except MalformedError as error:
                self.refuse(error)

"""What a client and its broker share: subscriptions, unacknowledged messages, identifiers.

Sans I/O: parsed packets go in, bytes to send are appended to ``out``. A session outlives
connections.

We complete the broker's publications in the order received: the PUBACK of a QoS 1 publication waits
for the release of every QoS 2 publication before it. Mosquitto 2.0 makes room in its window by the
position of the completed message; if that is not near the front, it sends one publication ahead of
those that wait (``db__message_delete_outgoing`` in database.c). That breaks the order, and with it
the pairs that ``runtime.data.copies`` expects.

Source: OASIS MQTT 5.0, sections 4.1 (session state) and 4.6 (order).
"""

from collections.abc import Iterable

import mqtt5

from federator.errors import LinkError
from federator.runtime.mqtt import wire
from federator.runtime.mqtt.subscriptions import Subscriptions
from federator.runtime.mqtt.window import BrokerLimits, OutboundWindow, PacketIds
from federator.runtime.mqtt.wire import Inbound, Out, acknowledgement

MQTT_PACKET_BYTES_MAX = 268_435_460
RECEIVE_MAX = 65_535
"""QoS 1 and 2 messages we let the broker send unacknowledged: as many as there are identifiers."""


class MqttSession:
    """The session state of one client id at one broker.

    Args:
        queue_bytes_max: Bytes of QoS 1 and 2 messages kept until the broker acknowledges them.
        acknowledge: Acknowledge each read's publications; otherwise the caller does it.
    """

    def __init__(self, *, queue_bytes_max: int, acknowledge: bool = True) -> None:
        ids = PacketIds()
        self.window = OutboundWindow(ids, bytes_max=queue_bytes_max)
        self.subscriptions = Subscriptions(ids)
        self.number = 0
        """Grows when the broker starts a new session: identifiers of older ones mean nothing."""
        self._acknowledge = acknowledge
        # QoS 2 publications acknowledged by PUBREC, not released yet
        self._received: set[int] = set()
        self._incomplete: dict[int, list[int]] = {}
        """Those of this connection, in order, each with the QoS 1 publications that wait for it."""

    def resume(self, ack: mqtt5.ConnAckPacket, out: Out, *, died: bool = False) -> BrokerLimits:
        """Resume the session after a CONNACK; return the limits the broker grants.

        ``died``: the broker probably crashed since the last connection.
        """
        limits = BrokerLimits(
            receive_max=ack.receive_max,
            packet_bytes_max=ack.max_packet_size or MQTT_PACKET_BYTES_MAX,
            qos_max=int(ack.max_qos),
            subscription_ids_available=ack.subscription_id_available,
        )
        if not ack.session_present:
            self._received.clear()
            self.number += 1
        self.subscriptions.resume(
            session_present=ack.session_present,
            out=out,
            identifiers=limits.subscription_ids_available,
        )
        self.window.resume(limits, session_present=ack.session_present, out=out, died=died)
        return limits

    def suspend(self) -> None:
        """Forget what ends with a lost connection."""
        self._incomplete.clear()  # without their PUBACK, the broker sends them again
        self.window.suspend()
        self.subscriptions.suspend()

    def admit(self, publishes: list[Inbound], out: Out) -> list[Inbound]:
        """The publications that the observer must see; their acknowledgements go into ``out``."""
        if not (self._acknowledge or self._received):
            return publishes
        for packet, _, _ in publishes:
            if packet.packet_id is not None:
                break
        else:
            return publishes  # all QoS 0
        admitted: list[Inbound] = []
        for inbound in publishes:
            packet = inbound[0]
            packet_id = packet.packet_id
            # Without DUP it is a new publication: the broker was restored from an older state.
            seen_before = packet.qos == 2 and packet.duplicate and packet_id in self._received
            if not seen_before:
                admitted.append(inbound)
            if packet_id is not None and (self._acknowledge or seen_before):
                self.acknowledge(packet_id, int(packet.qos), out)
        return admitted

    def acknowledge(self, packet_id: int, qos: int, out: Out) -> None:
        """Acknowledge a publication; at QoS 1 after the release of those before it."""
        if qos == 2:
            self._received.add(packet_id)
            self._incomplete.setdefault(packet_id, [])
            out.append(acknowledgement(wire.PUBREC, packet_id))
        elif self._incomplete:  # in order: behind the newest QoS 2 publication before it
            self._incomplete[next(reversed(self._incomplete))].append(packet_id)
        else:
            out.append(acknowledgement(wire.PUBACK, packet_id))

    def acknowledge_all(self, packet_ids: Iterable[tuple[int, int]], out: Out) -> None:
        """Acknowledge many, given as (packet id, QoS)."""
        run: list[int] = []
        for packet_id, qos in packet_ids:
            if qos == 1 and not self._incomplete:
                run.append(packet_id)
            else:
                if run:
                    out.append(wire.acknowledgements(run))
                    run = []
                self.acknowledge(packet_id, qos, out)
        if run:
            out.append(wire.acknowledgements(run))

    def on_packet(self, packet: mqtt5.Packet, out: Out) -> dict[str, int]:
        """Handle any packet but PUBLISH, CONNACK, PINGRESP and DISCONNECT.

        Returns:
            Filters that the broker just refused for the first time, with its reason codes.

        Raises:
            LinkError: A broker must not send this packet.
        """
        match packet:
            case mqtt5.PubAckPacket():
                self.window.on_acknowledged(packet.packet_id, int(packet.reason_code), out, qos=1)
            case mqtt5.PubCompPacket():
                self.window.on_acknowledged(packet.packet_id, int(packet.reason_code), out, qos=2)
            case mqtt5.PubRecPacket():
                self.window.on_received(packet.packet_id, int(packet.reason_code), out)
            case mqtt5.PubRelPacket():
                self._received.discard(packet.packet_id)
                out.append(acknowledgement(wire.PUBCOMP, packet.packet_id))
                for packet_id in self._incomplete.pop(packet.packet_id, ()):
                    out.append(acknowledgement(wire.PUBACK, packet_id))
            case mqtt5.SubAckPacket():
                return self.subscriptions.on_suback(packet, out)
            case mqtt5.UnsubAckPacket():
                self.subscriptions.on_unsuback(packet, out)
            case _:
                raise LinkError(f"unexpected {type(packet).__name__}")
        return {}

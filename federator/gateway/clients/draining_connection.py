"""Deliveries from the broker that a client leaves, in a planned move.

They are received and acknowledged here. Those that do not arrive by the new broker, too, are sent
to the client before any of the new one's. When the new broker serves, this connection is closed.

Source: docs/gateway.md, "Planned moves".
"""

from typing import Final

from federator.gateway import wire
from federator.gateway.brokers import Broker
from federator.gateway.clients.ports import Port
from federator.gateway.wire.kinds import Kind, MalformedError, Version
from federator.protocol.types import Millis
from federator.runtime.process.clocks import monotonic_ms

DRAINED_BYTES_MAX: Final = 16_777_216
"""Bytes of deliveries that are kept; more stay with the broker and are lost to the client."""


class DrainingConnection:
    """A client's connection to the broker that it leaves."""

    def __init__(
        self, port: Port, splitter: wire.Splitter, version: Version, broker: Broker
    ) -> None:
        self.broker = broker
        self._deliveries: list[tuple[Millis, bytes]] = []
        self._bytes = 0
        self._port = port
        self._splitter = splitter
        self._version = version
        port.give_to(self)
        port.block("client", False)

    def take(self, until_ms: Millis) -> list[bytes]:
        """Remove and return the QoS 1 and 2 deliveries received until ``until_ms``."""
        taken = [packet for came_ms, packet in self._deliveries if came_ms <= until_ms]
        del self._deliveries[: len(taken)]
        return taken

    def on_data(self, port: Port, data: bytes) -> bool:
        """Take deliveries and acknowledge them."""
        answers: list[bytes] = []
        try:
            block, packets = self._splitter.feed(data)
            for packet in packets:
                kind = packet[0] & 0xF0
                if kind == Kind.PUBLISH and packet[0] & wire.QOS:
                    packet_id, _ = wire.publish_id(block, packet)
                    self._keep(block[packet[1] : packet[3]])
                    answer = Kind.PUBREC if packet[0] & wire.QOS_2 else Kind.PUBACK
                    answers.append(wire.write_ack(answer, packet_id, self._version))
                elif kind == Kind.PUBREL:
                    packet_id, _ = wire.read_ack(block, packet, self._version, from_client=False)
                    answers.append(wire.write_ack(Kind.PUBCOMP, packet_id, self._version))
        except MalformedError:
            port.abort()
            return False
        if answers:
            port.write(answers)
        return self._splitter.more

    def on_lost(self, port: Port, error: Exception | None) -> None:
        """Do nothing: what was received is kept here."""

    def on_room(self, port: Port, room: bool) -> None:
        """Do nothing: only acknowledgements are sent."""

    def close(self) -> None:
        """Disconnect from the broker, without the will."""
        if self._port.open:
            self._port.write([wire.write_disconnect(0, self._version)])
        self._port.close()

    def _keep(self, packet: bytes) -> None:
        if self._bytes + len(packet) <= DRAINED_BYTES_MAX:
            self._deliveries.append((monotonic_ms(), packet))
            self._bytes += len(packet)

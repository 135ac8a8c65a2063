"""Packet ids of deliveries when several brokers count them for one client.

Each broker numbers its own deliveries. The client sees the broker's id while no other delivery uses
it, and a free one otherwise, until it has acknowledged. A client may also limit unacknowledged
deliveries; what several brokers send beyond that waits here, and is bounded, for each of them keeps
to the client's limit.

Source: OASIS MQTT 5.0, 2.2.1, 3.1.2.11.3 and 4.9.
"""

from collections import deque
from collections.abc import Mapping

from federator.gateway.session.upstream import PACKET_ID_MAX
from federator.gateway.wire import DUP, QOS_2, again

Delivery = tuple[int, int]
"""A delivery of one broker: its leg, and its packet id there."""


class DeliveryIds:
    """The deliveries of all legs that one client has not acknowledged.

    Args:
        receive_max: How many the client accepts at a time.
        unreleased: QoS 2 deliveries from an earlier connection of the client: the client's packet
            id by delivery.
    """

    __slots__ = ("_at_client", "_exact", "_ids", "_next", "_room", "_waiting")

    def __init__(self, receive_max: int, unreleased: Mapping[Delivery, int]) -> None:
        self._room = min(receive_max, PACKET_ID_MAX - 1)
        self._at_client: dict[int, Delivery] = {id: delivery for delivery, id in unreleased.items()}
        self._ids: dict[Delivery, int] = dict(unreleased)
        self._exact: set[int] = set(self._at_client)
        self._waiting: deque[tuple[Delivery, bytes]] = deque()
        self._next = PACKET_ID_MAX

    @property
    def unreleased(self) -> dict[Delivery, int]:
        """Unfinished QoS 2 deliveries, for the client's next connection."""
        return {self._at_client[id]: id for id in self._exact}

    def deliver(self, delivery: Delivery, packet: bytes, out: list[bytes]) -> None:
        """Send a QoS 1 or 2 delivery, or keep it until the client has room."""
        if delivery not in self._ids and (self._waiting or len(self._at_client) >= self._room):
            self._waiting.append((delivery, packet))
        else:
            out.append(self._addressed(delivery, packet))

    def of(self, packet_id: int) -> Delivery | None:
        """The delivery with this ``packet_id`` at the client."""
        return self._at_client.get(packet_id)

    def at_client(self, delivery: Delivery) -> int | None:
        """The client's packet id of a QoS 2 delivery; a new one if an earlier connection began it.

        ``None`` if no packet id is left.
        """
        packet_id = self._ids.get(delivery)
        if packet_id is None:
            if len(self._at_client) >= PACKET_ID_MAX - 1:
                return None
            packet_id = self._take(delivery)
            self._exact.add(packet_id)
        return packet_id

    def is_used(self, delivery: Delivery) -> bool:
        """Whether a delivery waits for the client's acknowledgement."""
        return delivery in self._ids

    def finish(self, packet_id: int, out: list[bytes]) -> None:
        """Forget a delivery that the client has acknowledged for good: another may follow."""
        delivery = self._at_client.pop(packet_id, None)
        if delivery is None:
            return
        del self._ids[delivery]
        self._exact.discard(packet_id)
        while self._waiting and len(self._at_client) < self._room:
            out.append(self._addressed(*self._waiting.popleft()))

    def _take(self, delivery: Delivery) -> int:
        packet_id = delivery[1]
        while packet_id in self._at_client:
            packet_id = self._next
            self._next = self._next - 1 or PACKET_ID_MAX
        self._at_client[packet_id] = delivery
        self._ids[delivery] = packet_id
        return packet_id

    def _addressed(self, delivery: Delivery, packet: bytes) -> bytes:
        packet_id = self._ids.get(delivery)
        if packet_id is None:
            packet_id = self._take(delivery)
        if packet[0] & QOS_2:
            self._exact.add(packet_id)
        if packet_id == delivery[1]:
            return packet
        return again(packet, packet_id, duplicate=bool(packet[0] & DUP))

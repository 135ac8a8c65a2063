"""Packet ids of deliveries when several brokers count them for one client.

Each broker numbers what it delivers by itself. The client sees a broker's own number while nobody
else's delivery has it, and a free one otherwise, until it has answered. A client may also bound
what it takes at a time; what several brokers send beyond that waits here, and is bounded itself,
for each of them keeps to the client's bound.

Source: OASIS MQTT 5.0, sections 2.2.1, 3.1.2.11.3 and 4.9.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from federator.gateway.upstream import PACKET_ID_MAX
from federator.gateway.wire import DUP, again, only, publish_id

_QOS_2: Final = 0x04

Name = tuple[int, int]
"""A way, and a packet id there."""


class DeliveryIds:
    """What one client has not answered, of all ways.

    Args:
        receive_max: What it takes at a time.
        unreleased: QoS 2 deliveries that an earlier connection of the client began: its packet
            id by the broker's.
    """

    __slots__ = ("_at_client", "_exact", "_names", "_next", "_room", "_waiting")

    def __init__(self, receive_max: int, unreleased: Mapping[Name, int]) -> None:
        self._room = min(receive_max, PACKET_ID_MAX - 1)
        self._at_client: dict[int, Name] = {id: name for name, id in unreleased.items()}
        self._names: dict[Name, int] = dict(unreleased)
        self._exact: set[int] = set(self._at_client)
        self._waiting: deque[tuple[Name, bytes]] = deque()
        self._next = PACKET_ID_MAX

    @property
    def unreleased(self) -> dict[Name, int]:
        """QoS 2 deliveries that are not finished, for the client's next connection."""
        return {self._at_client[id]: id for id in self._exact}

    def deliver(self, name: Name, packet: bytes, out: list[bytes]) -> None:
        """A QoS 1 or 2 delivery: send it, or keep it until the client has room."""
        if name not in self._names and (self._waiting or len(self._at_client) >= self._room):
            self._waiting.append((name, packet))
        else:
            out.append(self._addressed(name, packet))

    def name(self, packet_id: int) -> Name | None:
        """Whose delivery the client means by ``packet_id``."""
        return self._at_client.get(packet_id)

    def at_client(self, name: Name) -> int | None:
        """What the client calls a QoS 2 delivery; begun on an earlier connection if unknown.

        ``None`` when no packet id is left.
        """
        packet_id = self._names.get(name)
        if packet_id is None:
            if len(self._at_client) >= PACKET_ID_MAX - 1:
                return None
            packet_id = self._take(name)
            self._exact.add(packet_id)
        return packet_id

    def is_used(self, name: Name) -> bool:
        """Whether a delivery of that name waits for the client's answer."""
        return name in self._names

    def finish(self, packet_id: int, out: list[bytes]) -> None:
        """The client has answered for good: there is room for another."""
        name = self._at_client.pop(packet_id, None)
        if name is None:
            return
        del self._names[name]
        self._exact.discard(packet_id)
        while self._waiting and len(self._at_client) < self._room:
            out.append(self._addressed(*self._waiting.popleft()))

    def _take(self, name: Name) -> int:
        packet_id = name[1]
        while packet_id in self._at_client:
            packet_id = self._next
            self._next = self._next - 1 or PACKET_ID_MAX
        self._at_client[packet_id] = name
        self._names[name] = packet_id
        return packet_id

    def _addressed(self, name: Name, packet: bytes) -> bytes:
        packet_id = self._names.get(name)
        if packet_id is None:
            packet_id = self._take(name)
        if packet[0] & _QOS_2:
            self._exact.add(packet_id)
        if packet_id == name[1]:
            return packet
        _, id_at = publish_id(packet, only(packet))
        return again(packet, id_at, packet_id, duplicate=bool(packet[0] & DUP))

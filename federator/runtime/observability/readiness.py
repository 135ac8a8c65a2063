"""Whether an agent is ready: publications flow, and each configured neighbour was tried."""

from collections.abc import Sequence
from typing import Protocol

from federator.config import BrokerSettings
from federator.protocol.node import Node
from federator.runtime.links.neighbour_links import NeighbourLinks
from federator.runtime.mqtt.link import MqttLink


class Presence(Protocol):
    """What readiness needs to know of our place at our own broker."""

    up: bool

    has_rival: bool
    """Another agent with our id is at our own broker, in our place."""


class Readiness:
    """Whether one agent is ready.

    Args:
        broker: Our own.
        presence: Whether we are there.
        own_links: The connections to it.
        node: Knows whether another agent has our id.
        neighbours: The connections to neighbours' brokers.
    """

    def __init__(
        self,
        broker: BrokerSettings,
        *,
        presence: Presence,
        own_links: Sequence[MqttLink],
        node: Node,
        neighbours: NeighbourLinks,
    ) -> None:
        self._broker = broker
        self._presence = presence
        self._own_links = own_links
        self._node = node
        self._neighbours = neighbours

    def __call__(self) -> tuple[bool, str]:
        """Whether publications flow, and otherwise why not."""
        place, id_ = self._broker.reached_at, self._broker.id
        if self._presence.has_rival:
            return False, f"broker {place}: another agent with id {id_} is there: stop one of them"
        for link in self._own_links:
            if not link.connected:
                return False, f"broker {place}: {link.last_error or 'not connected yet'}"
        if not self._presence.up:
            return False, "subscribing on our broker"
        if self._node.id_conflict_until_ms is not None:
            return False, f"id {id_} is used by another agent too"
        for neighbour in self._neighbours.all:
            if neighbour.dialled_for is None and not neighbour.tried:
                return False, f"neighbour {neighbour.address}: not tried yet"
        return True, "ready"

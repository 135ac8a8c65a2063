"""Whether an agent is ready: publications flow, and each configured neighbour was tried."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from federator.config.brokers import BrokerSettings
from federator.protocol.node import Node
from federator.runtime.links.neighbour_links import NeighbourLinks
from federator.runtime.mqtt.link import MqttLink


class Presence(Protocol):
    """What readiness needs to know of our place at our own broker."""

    up: bool

    has_rival: bool
    """Another agent with our id is at our own broker, in our place."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether one agent is ready."""

    broker: BrokerSettings
    presence: Presence
    own_links: Sequence[MqttLink]  # to our own broker
    node: Node
    neighbours: NeighbourLinks

    def __call__(self) -> tuple[bool, str]:
        """Whether publications flow, and otherwise why not."""
        place, id_ = self.broker.reached_at, self.broker.id
        if self.presence.has_rival:
            return False, f"broker {place}: another agent with id {id_} is there: stop one of them"
        for link in self.own_links:
            if not link.connected:
                return False, f"broker {place}: {link.last_error or 'not connected yet'}"
        if not self.presence.up:
            return False, "subscribing on our broker"
        if self.node.id_conflict_until_ms is not None:
            return False, f"id {id_} is used by another agent too"
        for neighbour in self.neighbours.all:
            if neighbour.dialled_for is None and not neighbour.tried:
                return False, f"neighbour {neighbour.address}: not tried yet"
        return True, "ready"

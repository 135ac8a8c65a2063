"""Roles: what an agent does for the place of its broker, and what a role may ask of an agent.

An agent gets its role when it is made. ``Role`` itself is that of a member and of a leaf: only
clients of the broker want anything. ``hub`` has the two others: ``Hub`` for the agent of its
broker, ``PortRole`` for the agents of its leaves. While a broker changes its role, two agents are
at it, and each knows the other as ``OtherAgent``.

Source: docs/hubs.md.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from federator.config.settings import Settings
from federator.protocol.discovery import DiscoveryRecord
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.leaves.handover import Turn
from federator.protocol.node import Node
from federator.protocol.policy.broker_policy import BrokerPolicy
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.types import BrokerId
from federator.runtime.data.data_path import DataPath
from federator.runtime.links.control_traffic import ControlTraffic
from federator.runtime.links.neighbour_links import NeighbourLinks
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.mqtt.link import MqttLink


class Role:
    """The role of a member's agent, and of a leaf's.

    Attributes:
        again: Takes what a leaf brings that the mesh brought before: others there may lack it.
        note_arrival: Called with a frame's keys, its packets by their names here, and their number.
        on_wanted: Called with the filters that others want now, and no longer.
    """

    again: Callable[[bytes], None] | None = None
    note_arrival: Callable[[bytes, bytes, int], None] | None = None
    on_wanted: Callable[[Sequence[str], Sequence[str]], None] | None = None

    def on_clients(
        self,
        added: frozenset[str],
        removed: frozenset[str],
        ask: Callable[[Iterable[str], Iterable[str]], None],
    ) -> None:
        """The broker's own clients want other filters; ``ask`` asks the federation for them."""
        ask(added, removed)

    def asked(self, wanted: frozenset[str]) -> frozenset[str]:
        """What the federation is asked for, by names on our broker, while clients want this."""
        return wanted

    def own_links(self) -> list[MqttLink]:
        """Further connections of this process to our broker."""
        return []

    def call_roll(self) -> None:
        """Ask leaves to subscribe again here, for the log."""

    def is_complete(self) -> bool:
        """Whether everything else at this broker is ready."""
        return True

    def on_looked(self) -> None:
        """The agent checked its presence at the broker."""

    def served_leaves(self) -> int:
        """How many leaves our broker serves."""
        return 0

    def on_roaming(self) -> None:
        """The leaf that hangs here has another hub besides."""


@dataclass(frozen=True, slots=True)
class OtherAgent:
    """The other of two agents at one broker.

    Attributes:
        turn: Which of the two carries a publication.
        own_links: Its connections to the broker.
        record: What it knows of the broker's clients, for an agent without a record.
    """

    turn: Turn
    own_links: Callable[[], list[MqttLink]]
    record: Callable[[], DiscoveryRecord | None] = lambda: None


class BrokerAgent(Protocol):
    """An agent, as roles see it."""

    settings: Settings
    node: Node
    forwarder: Forwarder
    policy: BrokerPolicy
    link_policies: LinkPolicies
    path: DataPath
    connections: NeighbourLinks
    traffic: ControlTraffic

    @property
    def words_refused(self) -> int:
        """Messages without a valid signature."""

    def start(self) -> None: ...

    async def leave(self) -> None:
        """Send byes, and wait until these and the data for our broker are on their way."""

    def own_links(self) -> list[MqttLink]:
        """All its connections to the broker."""

    def ask(self, added: Iterable[str], removed: Iterable[str]) -> None:
        """Ask its side for ``added``, by their names here, and no longer for ``removed``."""

    def ask_for_nothing(self) -> None:
        """No longer ask for what clients of the broker want."""

    def bring_again(self, run: bytes) -> None:
        """Publish to its side what a client, or another agent here, published before."""

    def call_roll(self) -> None:
        """Ask neighbours behind outboxes to subscribe again here, for the log."""

    def follow_link_rules(self, settings: Settings) -> None: ...

    def follow(
        self, settings: Settings, endpoints: Mapping[str, Endpoint], *, returns: bool = True
    ) -> None: ...

    @property
    def subscribed(self) -> bool:
        """Whether its data connection has all its subscriptions."""

    def look(self) -> None:
        """Check its presence at the broker again, if it was not there."""

    def is_ready(self) -> bool:
        """Whether it is ready, and has a link."""

    def served_by(self) -> BrokerId | None:
        """The hub that serves it, if it chooses among several."""

    def stamp(self) -> None:
        """Stamp publications from now on."""

    def end_handover(self) -> None:
        """The other agent at the broker is gone."""

    def hold(self) -> None:
        """Hold what clients publish until ``release``."""

    def release(self) -> None: ...

    def record(self) -> DiscoveryRecord:
        """What it knows of the broker's clients."""

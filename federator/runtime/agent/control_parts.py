"""Makes the control parts: connections to our broker and neighbours, the node, its messages."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Final, get_args

from mqtt5 import Will

from federator.config.settings import Settings
from federator.protocol.client_names import OWN_PREFIX
from federator.protocol.events import Event, Received
from federator.protocol.messages.control import NodeMessage
from federator.protocol.node import Identity, Node
from federator.protocol.types import Epoch
from federator.runtime.agent.health import health_will
from federator.runtime.failover.guide_publisher import guide_will
from federator.runtime.links.control_traffic import ControlTraffic, PeerTraffic
from federator.runtime.links.neighbour_links import NeighbourLinks
from federator.runtime.links.outboxes import KeptOutboxes
from federator.runtime.mqtt.endpoint import endpoint_of
from federator.runtime.mqtt.link import LinkObserver, MqttLink
from federator.runtime.mqtt.parts import Part
from federator.runtime.mqtt.transport import RECEIVE_BUFFER_BYTES
from federator.runtime.storage.state_dir import StateDir
from federator.runtime.topology.arranging import Arranger, ConfiguredAddressVerifier, known_brokers
from federator.runtime.trust.guarding import KeyWatcher, Trust
from federator.runtime.trust.words import SignedWords

CONTROL_SESSION_EXPIRY_S: Final = 300
"""How long our broker keeps log lines for us while we are disconnected."""

READ_BYTES: Final = {"ctl": 16_384, "retained": 16_384}
"""How much one turn of the loop reads where a packet may cost much: some 150 lines of the log, or
800 retained values. Longer packets are still read whole."""


class _Nobody(LinkObserver):
    """Ignores everything, in place of a part that is made after the connection."""


@dataclass(eq=False, repr=False)
class OwnBroker:
    """Makes the connections of one agent to its own broker, each with a client id of its own.

    Control and data have one each, so that neither waits behind the other; other purposes (scans of
    retained values, a member's place in a shared group) get their own. All ids end in the secret
    ``token`` of our state folder: a client that guessed them could take over our sessions.
    """

    settings: Settings
    tasks: asyncio.TaskGroup
    token: str

    def link(
        self,
        role: str,
        observer: LinkObserver | None = None,
        *,
        clean_start: bool = False,
        will: Will | Callable[[], Will] | None = None,
    ) -> MqttLink:
        """A connection for one purpose. The caller sets its observer and runs it."""
        links = self.settings.links
        expiry_s = {"ctl": CONTROL_SESSION_EXPIRY_S, "data": self.settings.custody.keep_s}
        return MqttLink(
            endpoint_of(self.settings.broker),
            observer or _Nobody(),
            client_id=f"{OWN_PREFIX}{self.settings.broker.id}-{role}-{self.token}",
            clean_start=clean_start,
            session_expiry_s=expiry_s.get(role, 0),
            acknowledge=role != "data",
            may_forget=role == "data",
            will=will,
            reconnect_min_ms=links.reconnect_min_ms,
            reconnect_max_ms=links.reconnect_max_ms,
            send_queue_bytes_max=links.send_queue_bytes_max,
            read_bytes_max=READ_BYTES.get(role, RECEIVE_BUFFER_BYTES),
        )

    def stand_in(self, number: int, observer: LinkObserver) -> MqttLink:
        """A member of shared groups only while it lives; it returns no messages."""
        link = self.link(f"share-{number}", observer, clean_start=True)
        self.tasks.create_task(link.run(), name=f"stand-in {number}")
        return link

    def former(self, observer: LinkObserver) -> MqttLink:
        """The data connection under the client id that it had before ids were secret."""
        return MqttLink(
            endpoint_of(self.settings.broker),
            observer,
            client_id=f"{OWN_PREFIX}{self.settings.broker.id}-data",
            clean_start=False,
            session_expiry_s=self.settings.custody.keep_s,
            acknowledge=False,
        )


@dataclass(eq=False, repr=False)
class ControlParts:
    """The node of one agent, and its control connections.

    Attributes:
        link: The control connection to our broker, and
        data_link: the data connection.
    """

    settings: Settings
    state: StateDir
    tasks: asyncio.TaskGroup
    _: KW_ONLY
    is_new: bool  # we owe nothing of an earlier session with our broker
    handle: Callable[[Event], None]  # gives the node an event, and has its effects carried out

    def __post_init__(self) -> None:
        settings, state, tasks = self.settings, self.state, self.tasks
        self.own_broker = OwnBroker(settings, tasks, state.client_token())
        epoch = state.next_epoch()
        self.trust = trust = None if settings.security == "open" else Trust(settings, state.path)
        self.words = SignedWords(None) if trust is None else trust.words
        self.is_gateways = partial(self.words.is_gateways, settings.broker_id)
        self.node = _node(settings, state, epoch, trust)
        gone = partial(guide_will, settings, trust) if settings.failover.enabled else None
        self.link = self.own_broker.link("ctl", will=gone)
        will = health_will(settings, epoch)
        self.data_link = self.own_broker.link("data", clean_start=self.is_new, will=will)
        # A connection gets its Will from the traffic, which sends over these connections.
        self.connections = NeighbourLinks(
            settings,
            tasks,
            will_for=lambda neighbour, conn: self.traffic.will(neighbour, conn),
            tell=self.handle,
        )
        self.traffic = ControlTraffic(
            federation=settings.federation,
            links=self.node.links,
            connections=self.connections,
            trust=trust,
            peers=PeerTraffic() if settings.metrics.enabled else None,
            members=settings.members,
        )
        self.outboxes = KeptOutboxes(
            self_id=settings.broker_id, traffic=self.traffic, connections=self.connections
        )
        self._is_arranging = settings.topology.mode == "auto"
        self.arranger = Arranger(state.path, measured=self.handle)
        self.keys = None
        if trust is not None:
            links = self.node.links
            self.keys = KeyWatcher(
                links.self_id,
                trust,
                neighbours=lambda: [peer.conn for peer in links.up.values()],
                send=self.traffic.send_over,
            )

    def parts(self) -> Iterator[Part]:
        handle = self.handle
        yield Part(
            subscriptions=self.traffic.subscriptions(),
            messages=dict.fromkeys(
                get_args(NodeMessage), lambda message: handle(Received(message))
            ),
        )
        yield self.outboxes.part()
        if self.keys is not None:
            yield self.keys.part()
        if self._is_arranging:
            yield self.arranger.part()

    def current_epoch(self) -> Epoch:
        return self.epoch

    @property
    def epoch(self) -> Epoch:
        """Our current epoch: renewed when another agent is known under our id."""
        return self.node.links.epoch


def _node(settings: Settings, state: StateDir, epoch: Epoch, trust: Trust | None) -> Node:
    broker = settings.broker
    auto = settings.topology.mode == "auto"
    return Node(
        Identity(settings.broker_id, epoch, broker.advertised, broker.priority, broker.name),
        settings.parameters(),
        settings.failover_parameters(),
        settings.topology_parameters(known_brokers(state.path)) if auto else None,
        ConfiguredAddressVerifier(settings, trust),
    )

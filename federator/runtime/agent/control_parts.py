"""Makes what speaks with our broker and with neighbours: connections, the node, its messages."""

import asyncio
from functools import partial

from mqtt5 import Will

from federator.config.settings import Settings
from federator.protocol.messages.control import Bye
from federator.protocol.node import Identity, Node
from federator.protocol.types import ConnId, Epoch
from federator.runtime.agent.driver import Driver
from federator.runtime.agent.health import health_will
from federator.runtime.agent.own_broker import OwnBroker
from federator.runtime.failover.guide_publisher import guide_will
from federator.runtime.links.control_traffic import ControlTraffic
from federator.runtime.links.dialler import Dialler
from federator.runtime.links.neighbour_links import NeighbourLinks
from federator.runtime.links.peer_traffic import PeerTraffic
from federator.runtime.storage.state_dir import StateDir
from federator.runtime.topology.arranging import Arranger, ConfiguredAddressVerifier, known_brokers
from federator.runtime.trust.guarding import KeyWatcher, Trust


class ControlParts:
    """The node of one agent, and the connections by which it is heard.

    Args:
        is_new: We owe nothing of an earlier session with our broker.

    Attributes:
        link: The control connection to our broker, and
        data_link: the data connection.
    """

    def __init__(
        self, settings: Settings, state: StateDir, tasks: asyncio.TaskGroup, *, is_new: bool
    ) -> None:
        self.own_broker = OwnBroker(settings, tasks, state.client_token())
        epoch = state.next_epoch()
        self.trust = trust = None if settings.security == "open" else Trust(settings, state.path)
        self.node = _node(settings, state, epoch, trust)
        self.driver = Driver(self.node)
        gone = partial(guide_will, settings, trust) if settings.failover.enabled else None
        self.link = self.own_broker.link("ctl", will=gone)
        will = health_will(settings, epoch)
        self.data_link = self.own_broker.link("data", clean_start=is_new, will=will)
        self.peers = PeerTraffic() if settings.metrics.enabled else None
        # A connection needs its Will from the traffic, which sends over these connections.
        self.connections = NeighbourLinks(tasks, will_for=self._will, tell=self.driver.handle)
        self.traffic = ControlTraffic(
            federation=settings.federation,
            links=self.node.links,
            connections=self.connections,
            trust=trust,
            peers=self.peers,
        )
        self.dialler = Dialler(settings, self.connections)
        self.arranger = Arranger(
            state.path, self.connections, self.dialler, measured=self.driver.handle
        )
        self.keys = None if trust is None else self._key_watcher(trust)

    @property
    def epoch(self) -> Epoch:
        """Ours, now: it is renewed when another agent is known under our id."""
        return self.node.links.epoch

    def _key_watcher(self, trust: Trust) -> KeyWatcher:
        return KeyWatcher(
            self.node.links.self_id,
            trust,
            neighbours=lambda: [each.conn for each in self.node.links.up.values()],
            send=self.traffic.send_over,
        )

    def _will(self, conn: ConnId) -> Will:
        links = self.node.links
        return self.traffic.will(Bye(links.self_id, links.epoch, conn))


def _node(settings: Settings, state: StateDir, epoch: Epoch, trust: Trust | None) -> Node:
    broker = settings.broker
    auto = settings.topology.mode == "auto"
    return Node(
        Identity(settings.broker_id, epoch, broker.advertised, broker.priority),
        settings.parameters(),
        settings.failover_parameters(),
        settings.topology_parameters(known_brokers(state.path)) if auto else None,
        ConfiguredAddressVerifier(settings, trust),
    )

"""Which neighbours' brokers we connect to, and as whom.

Those that the operator names are tried for ever, and so is whoever connects to us and says where
we can answer: a link is made by either end. What is said by strangers is bounded.
"""

from collections.abc import Callable
from dataclasses import dataclass

import structlog
from mqtt5 import Will

from federator.config.brokers import BrokerAddress
from federator.config.settings import Settings
from federator.protocol.messages.topics import connection_state_topic
from federator.protocol.types import BrokerId, Cost
from federator.runtime.links.neighbour_links import DIALLED_BACK_MAX, NeighbourLink, NeighbourLinks
from federator.runtime.mqtt.endpoint import endpoint_of
from federator.runtime.mqtt.link import LinkObserver, MqttLink
from federator.runtime.mqtt.secret_names import secret_name

LINK_UP, LINK_DOWN = b"1", b"0"
"""What a neighbour's broker keeps of our link, in the words of bridges."""

_log = structlog.get_logger()


@dataclass(eq=False, repr=False)
class Dialler:
    """Makes the connections of one agent to neighbours' brokers."""

    settings: Settings
    neighbours: NeighbourLinks

    def start(self) -> None:
        """Dial those that the operator names."""
        for neighbour in self.settings.neighbours:
            expected = BrokerId(neighbour.id) if neighbour.id is not None else None
            cost = Cost(neighbour.cost) if neighbour.cost is not None else None
            link = NeighbourLink(neighbour.url, expected, cost)
            self._dial(link, self.settings.neighbour_connection(neighbour))

    def dial_back(self, neighbour: BrokerId, address: str) -> None:
        """Dial ``neighbour`` where it says it is, unless that is no use."""
        try:
            connection = self.settings.dialled_back(address)
        except ValueError as error:
            _log.warning("neighbour.not_dialled", neighbour=neighbour, reason=str(error))
            return
        if any(connection.address == each.address for each in self.settings.neighbours):
            return  # it is tried already, for ever
        self.neighbours.hang_up_dialled(neighbour)
        if not self.neighbours.make_room():
            reason = f"{DIALLED_BACK_MAX} brokers are dialled back already"
            _log.warning("neighbour.not_dialled", neighbour=neighbour, reason=reason)
            return
        link = NeighbourLink(address, neighbour, None, dialled_for=neighbour)
        self._dial(link, connection)

    def dial_seed(self, address: str) -> None:
        """Dial a broker that the operator named for joining, whoever it is."""
        try:
            self._dial(NeighbourLink(address, None, None), self.settings.seed(address))
        except (OSError, ValueError) as error:
            _log.warning("topology.seed_not_dialled", address=address, reason=str(error))

    def _dial(self, neighbour: NeighbourLink, connection: BrokerAddress) -> None:
        links = self.settings.links
        target = connection.address
        ours = f"{self.settings.broker.id}-to-{target.host}-{target.port}"

        def make_link(
            role: str, observer: LinkObserver, will: Callable[[], Will] | None
        ) -> MqttLink:
            return MqttLink(
                endpoint_of(connection),
                observer,
                client_id=secret_name(f"{ours}-{role}"),
                will=self._link_will() if role == "data" else will,
                reconnect_min_ms=links.reconnect_min_ms,
                reconnect_max_ms=links.reconnect_max_ms,
                send_queue_bytes_max=links.send_queue_bytes_max,
            )

        self.neighbours.dial(neighbour, make_link)

    def _link_will(self) -> Will | None:
        """What a neighbour's broker says of our link when we vanish."""
        if not self.settings.links.notifications:
            return None
        topic = connection_state_topic(self.settings.broker_id)
        return Will(topic, payload=LINK_DOWN, retain=True)

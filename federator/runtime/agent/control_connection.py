"""The control connection to our own broker: everything comes this way that no client published.

Other agents' messages, the broker's log and ``$SYS``, operators' orders, and what we say to
ourselves to learn when it is through: the table of parts (``parts``) says who takes it.

Source: docs/ARCHITECTURE.md, "Connections".
"""

from collections.abc import Callable, Sequence

from mqtt5 import PublishPacket, Will

from federator.runtime.agent.own_broker import OwnBroker
from federator.runtime.agent.parts import Dispatch, Part
from federator.runtime.agent.presence import OwnBrokerPresence
from federator.runtime.discovery.service import Discovery
from federator.runtime.links.control_inbox import ControlInbox
from federator.runtime.links.control_traffic import ControlTraffic
from federator.runtime.loops.watch import LoopWatch
from federator.runtime.mqtt.link import Inbound, MqttLink


class ControlConnection:
    """Makes the control connection, and handles what comes over it.

    The parts are made with the connection, so it gets to know them afterwards, by ``start``.

    Args:
        will: What our broker says when we vanish.

    Attributes:
        filters: What it subscribes.
    """

    def __init__(self, own_broker: OwnBroker, will: Callable[[], Will] | None) -> None:
        self.link = own_broker.link("ctl", self, will=will)
        self.filters: tuple[str, ...] = ()
        self._inbox = ControlInbox(self._take)

    def start(
        self,
        parts: Sequence[Part],
        *,
        traffic: ControlTraffic,
        discovery: Discovery,
        loops: LoopWatch,
        presence: OwnBrokerPresence,
    ) -> None:
        """Subscribe what the parts want, and give them what comes. Before the connection runs."""
        self._dispatch = Dispatch(parts)
        self._traffic = traffic
        self._discovery = discovery
        self._loops = loops
        self._presence = presence
        subscriptions = [each for part in parts for each in part.subscriptions]
        self.filters = tuple(each.pattern for each in subscriptions)
        self.link.subscribe(subscriptions)

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """The broker accepted us."""
        self._discovery.on_up(link, session_present=session_present)
        if not session_present:
            self._loops.on_new_session()

    def on_subscribed(self, link: MqttLink) -> None:
        """The broker granted our subscriptions."""
        self._presence.update()

    def on_down(self, link: MqttLink, reason: str) -> None:
        """The connection ended."""
        self._discovery.on_down()
        self._presence.on_lost(link)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Hand on what one socket read brought."""
        for packet, _, _ in publishes:
            if packet.packet_id is not None:
                self._discovery.on_packet(packet.packet_id, duplicate=packet.duplicate)
            if not self._traffic.carries(packet.topic):
                self._dispatch.on_publish(packet)
            elif not self._inbox.put(packet):
                self._traffic.refuse(packet.topic)
        self._inbox.work()

    def _take(self, packet: PublishPacket) -> None:
        message = self._traffic.receive(packet)
        if message is not None:
            self._dispatch.on_message(message)

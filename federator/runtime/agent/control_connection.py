"""The control connection to our own broker: everything comes this way that no client published.

Other agents' messages, the broker's log and ``$SYS``, operators' orders, and what we say to
ourselves to learn when it is through: the table of parts (``parts``) says who takes it.

Source: docs/ARCHITECTURE.md, "Connections".
"""

from dataclasses import dataclass

from mqtt5 import PublishPacket

from federator.runtime.agent.parts import Dispatch
from federator.runtime.agent.presence import OwnBrokerPresence
from federator.runtime.discovery.service import Discovery
from federator.runtime.links.control_inbox import ControlInbox
from federator.runtime.links.control_traffic import ControlTraffic
from federator.runtime.loops.watch import LoopWatch
from federator.runtime.mqtt.link import Inbound, LinkObserver, MqttLink

SYS = "$SYS/"
"""What the broker tells of itself: runs of log lines, mostly."""


@dataclass(eq=False, repr=False)
class ControlConnection(LinkObserver):
    """Handles what comes over the control connection."""

    dispatch: Dispatch
    traffic: ControlTraffic
    discovery: Discovery
    loops: LoopWatch
    presence: OwnBrokerPresence

    def __post_init__(self) -> None:
        self._inbox = ControlInbox(self._take)

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """The broker accepted us."""
        self.discovery.on_up(link, session_present=session_present)
        if not session_present:
            self.loops.on_new_session()

    def on_subscribed(self, link: MqttLink) -> None:
        """The broker granted our subscriptions."""
        self.presence.update()

    def on_down(self, link: MqttLink, reason: str) -> None:
        """The connection ended."""
        self.discovery.on_down()
        self.presence.on_lost(link)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Hand on what one socket read brought."""
        for packet, _, _ in publishes:
            if packet.packet_id is not None:
                self.discovery.on_packet(packet.packet_id, duplicate=packet.duplicate)
            if not packet.topic.startswith(SYS):
                self.discovery.tell_changes()  # who takes it may count on all lines before it
            if not self.traffic.carries(packet.topic):
                self.dispatch.on_publish(packet)
            elif not self._inbox.put(packet):
                self.traffic.refuse(packet.topic)
        self.discovery.tell_changes()
        self._inbox.work()

    def _take(self, packet: PublishPacket) -> None:
        message = self.traffic.receive(packet)
        if message is not None:
            self.dispatch.on_message(message)

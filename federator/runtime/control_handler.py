"""The control connection to our own broker: what we hear there, and which part of us is told.

Everything that is no publication of a client comes this way: other agents' messages, the broker's
log and ``$SYS``, operators' orders, and what we say to ourselves to learn when it is through.

Source: docs/ARCHITECTURE.md, "Connections".
"""

from typing import TYPE_CHECKING

from mqtt5 import PublishPacket, TopicFilter

from federator.protocol.events import DrainRequested, Received
from federator.protocol.messages import (
    DatagramOffer,
    Echo,
    Message,
    RepairRequest,
    RetainedLetter,
    RetainedRequest,
    Revoked,
    TraceEcho,
    Wave,
)
from federator.runtime.clocks import monotonic_ms
from federator.runtime.mqtt_link import Inbound, MqttLink

if TYPE_CHECKING:
    from federator.runtime.agent import Agent


class ControlHandler:
    """Of one agent.

    Args:
        agent: Its parts are told; they need not be there before the connection is.
    """

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent

    def subscriptions(self) -> list[TopicFilter]:
        """The log comes first: it then reports the rest."""
        agent = self._agent
        marker = TopicFilter(agent.data_path.custody_outlet.marker_topic)
        filters = [
            *agent.discovery.subscriptions(),
            *agent.loops.subscriptions(),
            *agent.traffic.subscriptions(),
            agent.settling.subscription(),
            agent.tracing.subscription(),
            agent.cohabitants.subscription(),
            marker,
            *agent.guide.subscriptions(),
        ]
        if agent.retained is not None:
            filters.append(agent.retained.looks.mark_filter())
        if agent.metrics is not None:
            filters += agent.metrics.subscriptions()
        return filters

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """The broker accepted us."""
        self._agent.discovery.on_up(link, session_present=session_present)
        if not session_present:
            self._agent.loops.on_new_session()

    def on_subscribed(self, link: MqttLink) -> None:
        """Our subscriptions stand."""
        self._agent.presence.look()

    def on_down(self, link: MqttLink, reason: str) -> None:
        """The connection ended."""
        self._agent.discovery.on_down()
        self._agent.presence.on_lost(link)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """What one socket read brought."""
        for packet, _, _ in publishes:
            message = self._agent.traffic.receive(packet)
            if message is not None:
                self._on_message(message)
            else:
                self._on_word(packet)

    def _on_message(self, message: Message) -> None:
        """Another agent's: for the node, unless one part of us deals with its kind alone."""
        agent = self._agent
        match message:
            case RepairRequest():
                agent.data_path.custody.on_request(message)
            case RetainedRequest() | RetainedLetter():
                if agent.retained is not None:
                    agent.retained.on_message(message)
            case Wave() | Echo():
                agent.settling.on_message(message)
            case Revoked():
                if agent.keys is not None:
                    agent.keys.on_revoked(message)
            case TraceEcho():
                agent.tracing.on_echo(message)
            case DatagramOffer():
                if agent.datagrams is not None:
                    agent.datagrams.on_offer(message)
            case _:
                agent.driver.handle(Received(message))

    def _on_word(self, packet: PublishPacket) -> None:
        """Of our broker, of people, of an agent that should not be here, or our own."""
        agent = self._agent
        if agent.settling.hears(packet) or agent.tracing.hears(packet):
            return
        if packet.topic == agent.data_path.custody_outlet.marker_topic:
            agent.data_path.custody.destination.on_marker(packet.payload)
        elif packet.topic == agent.cohabitants.topic:
            agent.cohabitants.on_word(packet.payload, monotonic_ms())
        elif packet.topic.startswith("$"):
            self._on_log(packet)

    def _on_log(self, packet: PublishPacket) -> None:
        """The broker's log and ``$SYS``, and what else begins with ``$``: many parts listen."""
        agent = self._agent
        agent.presence.on_log(packet.topic, packet.payload)
        agent.loops.on_publish(packet)
        if agent.metrics is not None:
            agent.metrics.on_publish(packet)
        if agent.retained is not None:
            agent.retained.looks.on_control(packet.topic, packet.payload)
        order = agent.guide.on_publish(packet, now_ms=monotonic_ms())
        if order is not None:
            agent.driver.handle(DrainRequested(order.broker, order.drain))
        agent.discovery.on_publish(packet)

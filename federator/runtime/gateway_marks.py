"""Tells gateways how far this agent took custody of what its broker acknowledged.

A gateway's mark comes on the data connection at QoS 1, so behind every publication that the broker
acknowledged before it took the mark. It is answered when the broker is told that it is ours, and
with it all before it: these are in the custody log then.

Source: docs/gateway.md, "What a PUBACK is worth".
"""

from collections.abc import Sequence
from typing import Final

from mqtt5 import QoS, RetainHandling, TopicFilter

from federator.errors import DecodeError
from federator.protocol.guide import Mark, Taken, decode, encode, mark_topic, taken_topic
from federator.runtime.mqtt_link import Inbound, MqttLink

WAITING_MAX: Final = 1_024
"""Gateways whose newest mark is remembered."""


class GatewayMarks:
    """The marks that came and are not answered yet.

    Args:
        federation: The federation's name.
        link: The control connection, by which answers go.
    """

    def __init__(self, federation: str, link: MqttLink) -> None:
        self._federation = federation
        self._topic = mark_topic(federation)
        self._link = link
        self._waiting: dict[str, int] = {}
        self.malformed = 0

    def subscription(self) -> TopicFilter:
        """What to subscribe on the data connection."""
        return TopicFilter(
            self._topic,
            max_qos=QoS.AT_LEAST_ONCE,
            no_local=True,
            retain_handling=RetainHandling.SEND_NEVER,
        )

    def note(self, publishes: Sequence[Inbound]) -> None:
        """Remember the marks among ``publishes``; to be called before they are acknowledged."""
        for packet, _, _ in publishes:
            if packet.topic != self._topic or packet.packet_id is None:
                continue
            try:
                mark = decode(Mark, packet.payload)
            except DecodeError:
                self.malformed += 1
                continue
            if mark.gateway in self._waiting or len(self._waiting) < WAITING_MAX:
                self._waiting[mark.gateway] = max(mark.number, self._waiting.get(mark.gateway, 0))

    def on_acknowledged(self) -> None:
        """All that came is in the custody log, and the broker was told so."""
        if not self._waiting:
            return
        for gateway, number in self._waiting.items():
            self._link.publish(taken_topic(self._federation, gateway), encode(Taken(number)))
        self._waiting.clear()

    def on_down(self) -> None:
        """The data connection is gone; what was not acknowledged comes again, marks too."""
        self._waiting.clear()

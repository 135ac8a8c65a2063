"""Noticing another agent with another id at our own broker: two would let everything in twice.

Neighbours only publish on our broker; who subscribes to the federation's topics there is an agent
of it. So each agent says who it is on a topic that agents hear on their own broker only, when it
has come and when it hears of another one for the first time in a while. The younger one has made
the mistake and gives way, but only while it is new: a word on a topic is no proof, and must not end
an agent that is at work.

Two agents with *one* id are another matter; see ``presence.TakeoverDetector``.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import structlog
from mqtt5 import PublishPacket, QoS, RetainHandling, TopicFilter

from federator.errors import ConfigError
from federator.protocol.messages.topics import agents_topic
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.process.clocks import monotonic_ms

NEW_MS = 10_000
"""How long after it first met its broker an agent gives way."""

ANSWER_GAP_MS = Millis(10_000)
"""Least time between two answers, or two complaints, to one agent."""

ANSWERED_MAX = 64
EXIT_CODE = 78

_ANNOUNCED = re.compile(rb"(\d{1,10}) (\d{1,19})")

_log = structlog.get_logger()


class AgentAtBroker(NamedTuple):
    """An agent that is at a broker; the one that started later is greater."""

    epoch: Epoch
    id: BrokerId


class SharedBrokerGuard:
    """Watches for other agents at our own broker.

    Args:
        me: This agent.
        federation: The federation's name. Agents of several may share a broker.
        url: Our broker's, for people.
        link: The control connection to our broker.
        give_way: Ends this agent with the error.
    """

    def __init__(
        self,
        me: AgentAtBroker,
        *,
        federation: str,
        url: str,
        link: MqttLink,
        give_way: Callable[[ConfigError], None],
    ) -> None:
        self.topic = agents_topic(federation)
        self._me = me
        self._url = url
        self._link = link
        self._give_way = give_way
        self._since_ms: Millis | None = None
        self._answers: RateLimiter[BrokerId] = RateLimiter(
            gap_ms=ANSWER_GAP_MS, keys_max=ANSWERED_MAX
        )

    def subscription(self) -> TopicFilter:
        """What to subscribe on the control connection."""
        return TopicFilter(
            self.topic,
            max_qos=QoS.AT_MOST_ONCE,
            no_local=True,
            retain_handling=RetainHandling.SEND_NEVER,
        )

    def on_local_up(self, now_ms: Millis) -> None:
        """We are at our broker: say so."""
        if self._since_ms is None:
            self._since_ms = now_ms
        self._say()

    def on_publish(self, packet: PublishPacket) -> None:
        """Hear that an agent is at our broker."""
        now_ms = monotonic_ms()
        found = _ANNOUNCED.fullmatch(packet.payload)
        if found is None:
            return
        other = AgentAtBroker(Epoch(int(found[2])), BrokerId(int(found[1])))
        if other.id == self._me.id or not self._answers.allow(other.id, now_ms):
            return
        self._say()
        _log.error("broker.shared", id=self._me.id, other=other.id, broker=self._url)
        is_new = self._since_ms is None or now_ms - self._since_ms < NEW_MS
        if is_new and self._me > other:
            self._give_way(
                ConfigError(
                    f"broker.url: {self._url} has an agent already, with id {other.id}: "
                    "run one agent per broker, or name another broker",
                    exit_code=EXIT_CODE,
                )
            )

    def _say(self) -> None:
        self._link.publish(self.topic, b"%d %d" % (self._me.id, self._me.epoch), urgent=True)

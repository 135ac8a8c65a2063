"""Does our broker tell of its log what discovery lives on? Watched from the first second.

A broker whose log is not told looks like one whose clients want nothing. Any line proves that lines
of its kind are told; where none has come a short connection of ours brings one about. The lines of
our own subscriptions come by themselves, as the log is subscribed first.

Source: mosquitto.conf(5), ``log_type``; docs/ARCHITECTURE.md, "What we ask of a broker".
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import structlog
from mqtt5 import PubAckReasonCode, PublishPacket

from federator.config.brokers import BrokerAddress
from federator.errors import LinkError
from federator.protocol.messages.topics import doctor_topic
from federator.runtime.doctor.log_kinds import LOG_KINDS, LOG_LINES, lines_for_log, untold
from federator.runtime.mqtt.probe import BrokerProbe
from federator.runtime.mqtt.secret_names import secret_name
from federator.runtime.process.clocks import beat

LOOK_S: Final = 1.0
LINES_MAX_S: Final = 5.0
"""A busy broker writes them late."""

AGAIN_S: Final = 30.0
"""Between two tries while something is missing."""

_log = structlog.get_logger()


@dataclass(eq=False, repr=False)
class LogWatch:
    """Knows which lines of its log a broker does not tell, and says so."""

    broker: BrokerAddress
    federation: str
    name: str  # ours, for people who read the broker's log
    is_up: Callable[[], bool]
    missing: tuple[str, ...] = field(default=(), init=False)
    _forbidden: bool = field(default=False, init=False)
    _heard: set[str] = field(default_factory=set, init=False)

    def on_line(self, packet: PublishPacket) -> None:
        """Take it from any line of the log that such lines are told."""
        self._heard.add(LOG_LINES[packet.topic])
        self._forbidden = False

    def on_down(self) -> None:
        """Believe no line of before: our broker may come back with another configuration."""
        self._heard.clear()

    def hindrances(self) -> Iterable[str]:
        """What is missing, for an operator."""
        if len(self.missing) == len(LOG_KINDS):
            yield "our broker tells nothing of its log: see federator doctor"
        elif self.missing:
            lines = " and ".join(f"`log_type {kind}`" for kind in self.missing)
            yield f"our broker's mosquitto.conf lacks {lines}: see federator doctor"

    def block(self) -> str:
        """Why nothing comes to us from our broker; empty: it does."""
        if not self._forbidden:
            return ""
        return f"broker {self.broker.reached_at}: its ACL forbids us everything: federator doctor"

    async def run(self) -> None:
        """Look whenever our broker is up, until cancelled."""
        while True:
            await beat(LOOK_S)
            if (self.missing or len(self._heard) < len(LOG_KINDS)) and self.is_up():
                await self._look()
                await asyncio.sleep(AGAIN_S if self.missing else 0)

    async def _look(self) -> None:
        """Bring about a line of each kind, and see which come."""
        try:
            client_id = secret_name(f"{self.name}-log")
            async with BrokerProbe(self.broker, client_id=client_id) as probe:
                topic = doctor_topic(self.federation, secrets.token_hex(4))
                if "subscribe" not in self._heard:
                    await probe.subscribe(topic)
                await probe.unsubscribe(topic)
                for _ in range(round(LINES_MAX_S / LOOK_S)):
                    if not untold(self._heard):
                        break
                    await asyncio.sleep(LOOK_S)
                nothing = len(untold(self._heard)) == len(LOG_KINDS)
                answered = await probe.publish(topic, b"?") if nothing else None
                self._forbidden = answered is PubAckReasonCode.NOT_AUTHORIZED
        except LinkError:
            return
        if self.is_up():
            self._tell(untold(self._heard))

    def _tell(self, missing: tuple[str, ...]) -> None:
        known, self.missing = self.missing, missing
        if missing and missing != known:
            add = lines_for_log(self._heard)
            place = self.broker.reached_at
            _log.error("discovery.log_missing", broker=place, missing=list(missing), add=add)

"""Watches from the first second whether our broker publishes the log lines discovery needs.

Without them a broker looks like one with clients that want nothing. Any line proves that lines of
its kind are published; for a missing kind a short connection of ours triggers one. The lines of our
own subscriptions come by themselves, as we subscribe to the log first.

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
from federator.runtime.doctor.log_kinds import LOG_KINDS, LOG_LINES, lines_for_log, missing_kinds
from federator.runtime.mqtt.parts import Part
from federator.runtime.mqtt.probe import BrokerProbe
from federator.runtime.mqtt.secret_names import secret_name
from federator.runtime.process.clocks import beat

LOOK_S: Final = 1.0
LINES_MAX_S: Final = 5.0
"""A busy broker writes them late."""

AGAIN_S: Final = 30.0
"""Between two tries while lines are missing."""

_log = structlog.get_logger()


@dataclass(eq=False, repr=False)
class LogWatch:
    """Tracks and logs which kinds of log lines a broker does not publish."""

    broker: BrokerAddress
    federation: str
    name: str  # ours, for readers of the broker's log
    is_up: Callable[[], bool]
    missing: tuple[str, ...] = field(default=(), init=False)
    _forbidden: bool = field(default=False, init=False)
    _logged_kinds: set[str] = field(default_factory=set, init=False)

    def on_line(self, packet: PublishPacket) -> None:
        """Note that lines of this kind are published."""
        self._logged_kinds.add(LOG_LINES[packet.topic])
        self._forbidden = False

    def on_down(self) -> None:
        """Forget earlier lines: our broker may come back with another configuration."""
        self._logged_kinds.clear()

    def hindrances(self) -> Iterable[str]:
        """What is missing, for an operator."""
        if len(self.missing) == len(LOG_KINDS):
            yield "our broker tells nothing of its log: see federator doctor"
        elif self.missing:
            lines = " and ".join(f"`log_type {kind}`" for kind in self.missing)
            yield f"our broker's mosquitto.conf lacks {lines}: see federator doctor"

    def block(self) -> str:
        """Why our broker sends us nothing; empty if it does."""
        if not self._forbidden:
            return ""
        return f"broker {self.broker.reached_at}: its ACL forbids us everything: federator doctor"

    def part(self) -> Part:
        return Part(topics=dict.fromkeys(LOG_LINES, self.on_line), tasks={"log": self.run})

    async def run(self) -> None:
        """Check whenever our broker is up, until cancelled."""
        while True:
            await beat(LOOK_S)
            if (self.missing or len(self._logged_kinds) < len(LOG_KINDS)) and self.is_up():
                await self._look()
                await asyncio.sleep(AGAIN_S if self.missing else 0)

    async def _look(self) -> None:
        """Trigger a line of each kind, and note which come."""
        try:
            client_id = secret_name(f"{self.name}-log")
            async with BrokerProbe(self.broker, client_id=client_id) as probe:
                topic = doctor_topic(self.federation, secrets.token_hex(4))
                if "subscribe" not in self._logged_kinds:
                    await probe.subscribe(topic)
                await probe.unsubscribe(topic)
                for _ in range(round(LINES_MAX_S / LOOK_S)):
                    if not missing_kinds(self._logged_kinds):
                        break
                    await asyncio.sleep(LOOK_S)
                nothing = len(missing_kinds(self._logged_kinds)) == len(LOG_KINDS)
                answered = await probe.publish(topic, b"?") if nothing else None
                self._forbidden = answered is PubAckReasonCode.NOT_AUTHORIZED
        except LinkError:
            return
        if self.is_up():
            self._log_missing(missing_kinds(self._logged_kinds))

    def _log_missing(self, missing: tuple[str, ...]) -> None:
        former, self.missing = self.missing, missing
        if missing and missing != former:
            add = lines_for_log(self._logged_kinds)
            place = self.broker.reached_at
            _log.error("discovery.log_missing", broker=place, missing=list(missing), add=add)

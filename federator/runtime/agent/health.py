"""Publishes the agent's health on brokers, and a Will that reports its death.

Our own broker retains a page of JSON, replaced by our Will when we vanish. Each neighbour's broker
retains one digit, as for a bridge: dashboards for bridges show our links.

Both are repeated every ``EVERY_S``, which repairs a late Will or a broker that lost the page.

Source: docs/observability.md, "On the brokers".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import structlog
from mqtt5 import PublishPacket, Will
from msgspec.structs import replace

from federator import __version__
from federator.config.settings import Settings
from federator.protocol.links.standing import Standing, Word
from federator.protocol.messages.guide import HEALTH_VERSION, Health
from federator.protocol.messages.json_codec import encode
from federator.protocol.messages.topics import connection_state_topic, health_topic
from federator.protocol.types import ConnId, Epoch
from federator.runtime.agent.home_assistant import HomeAssistantTeller
from federator.runtime.links.neighbour_links import LINK_DOWN, LINK_UP
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.parts import Part
from federator.runtime.observability.readiness import Readiness
from federator.runtime.process.clocks import beat, wall_clock_us

CHECK_S = 1.0
EVERY_S = 10
LINKS_TOLD_MAX = 1_000
STANDS_S = 3.0
"""How long a standing lasts before it is logged: during the start it changes with every hello."""

SETTLES_S = 10.0
"""The same while the reason why a link is down is about to be known."""

_log = structlog.get_logger()

State = Literal["ready", "not_ready", "down"]


def health_will(settings: Settings, epoch: Epoch) -> Will:
    """The Will on our own broker."""
    payload = encode(_health(settings, epoch, "down", "it vanished"))
    return Will(health_topic(settings.federation), payload=payload, retain=True)


@dataclass(eq=False, repr=False)
class HealthReporter:
    """Publishes the health of one agent."""

    settings: Settings
    data_link: MqttLink
    ready: Readiness
    home_assistant: HomeAssistantTeller
    leaves: Callable[[], int] = lambda: 0  # that our broker serves

    def __post_init__(self) -> None:
        self._links, self._neighbours = self.ready.node.links, self.ready.neighbours
        self._topic = health_topic(self.settings.federation)
        self._state_topic = connection_state_topic(self.settings.broker_id)
        self._published_health: Health | None = None
        self._standing_word: Word | None = None
        self._stood = 0  # checks with the same standing
        self._logged: Word | None = None
        self._published_digits: dict[ConnId, bytes] = {}

    def part(self) -> Part:
        return Part(tasks={"health": self.run}, leave=self.withdraw)

    async def run(self) -> None:
        """Publish changes within ``CHECK_S``, and everything every ``EVERY_S``."""
        checks = 0
        while True:
            again = checks % round(EVERY_S / CHECK_S) == 0
            health = self._now()
            self._publish_health(health, again=again)
            if self.settings.links.notifications:
                self._publish_link_digits(again=again)
            self.home_assistant.tell(health)
            checks += 1
            await beat(CHECK_S)

    def withdraw(self) -> None:
        """Publish on an orderly exit what the Wills would."""
        gone = _health(self.settings, self._links.epoch, "down", "it was stopped")
        _publish_retained(self.data_link, self._topic, encode(gone))
        self.home_assistant.withdraw()
        if self.settings.links.notifications:
            for neighbour in self._neighbours.all:
                if neighbour.outbox_of is None:
                    _publish_retained(neighbour.data, self._state_topic, LINK_DOWN)

    def _now(self) -> Health:
        """Our health, not yet dated."""
        neighbours, condition = self._links.neighbours, self.ready.condition()
        shown, standing = sorted(neighbours)[:LINKS_TOLD_MAX], condition.standing
        name_of = self.ready.node.failover.name_of
        state: State = "ready" if condition.ready else "not_ready"
        health = replace(
            _health(self.settings, self._links.epoch, state, condition.why_not or ""),
            links={str(id_): "up" if neighbours[id_].up else "down" for id_ in shown},
            names={str(id_): name for id_ in shown if (name := name_of(id_))},
        )
        if not condition.ready:
            return health
        self._log_standing(standing)
        return replace(health, standing=standing.word.value, standing_reasons=standing.reasons)

    def _publish_health(self, health: Health, *, again: bool) -> None:
        link = self.data_link
        if not link.connected:
            self._published_health = None  # our Will is retained there
        elif again or health != self._published_health:
            self._published_health = health
            told_now = replace(health, at_us=wall_clock_us(), leaves=self.leaves())
            _publish_retained(link, self._topic, encode(told_now))

    def _log_standing(self, standing: Standing) -> None:
        """Log our standing once it has lasted a while."""
        self._stood = self._stood + 1 if standing.word == self._standing_word else 1
        self._standing_word = standing.word
        stands_s = SETTLES_S if standing.settling else STANDS_S
        if self._stood >= stands_s / CHECK_S and standing.word != self._logged:
            self._logged = standing.word
            fields = {"word": standing.word.value, "reasons": list(standing.reasons)}
            if standing.well:
                _log.info("agent.standing", **fields)
            else:
                _log.warning("agent.standing", **fields)

    def _publish_link_digits(self, *, again: bool) -> None:
        links = self._links
        digits: dict[ConnId, bytes] = {}
        for neighbour in self._neighbours.all:
            conn, data = neighbour.conn, neighbour.data
            if conn is None or not data.connected or neighbour.outbox_of is not None:
                continue
            digits[conn] = LINK_UP if any(k.conn == conn for k in links.up.values()) else LINK_DOWN
            if again or self._published_digits.get(conn) != digits[conn]:
                _publish_retained(data, self._state_topic, digits[conn])
        self._published_digits = digits


def _health(settings: Settings, epoch: Epoch, state: State, reason: str) -> Health:
    """Our health without links, and not yet dated."""
    return Health(
        version=HEALTH_VERSION,
        federation=settings.federation,
        broker=settings.broker_id,
        state=state,
        reason=reason,
        epoch=epoch,
        release=__version__,
        links={},
        at_us=0,
        every_s=EVERY_S,
        name=settings.broker.name,
    )


def _publish_retained(link: MqttLink, topic: str, payload: bytes) -> None:
    """Publish retained at QoS 0: a broker drops it silently if its ACL forbids it."""
    if link.connected:
        link.write_packets((PublishPacket(topic, payload, retain=True).write(),), 1)

"""How we are, for whoever looks at a broker instead of at us; and our death, told by the broker.

On our own broker stands a page of JSON, and in its place, when we vanish, our Will. On each
neighbour's broker stands one digit, as beside a bridge: dashboards for bridges show our links.

Both are said again every ``EVERY_S``: a Will that comes late, or a broker that forgot, is mended.

Source: docs/observability.md, "On the brokers".
"""

import asyncio
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal

from mqtt5 import PublishPacket, Will
from msgspec.structs import replace

from federator.config import Settings
from federator.protocol.guide import (
    HEALTH_VERSION,
    Health,
    connection_state_topic,
    encode,
    health_topic,
)
from federator.protocol.types import ConnId
from federator.runtime.clocks import wall_clock_us
from federator.runtime.mqtt_link import MqttLink

if TYPE_CHECKING:
    from federator.runtime.agent import Agent

LOOK_S = 1.0
EVERY_S = 10
LINKS_TOLD_MAX = 1_000
UP, DOWN = b"1", b"0"

Ready = Callable[[], tuple[bool, str]]


def link_will(settings: Settings) -> Will | None:
    """What a neighbour's broker says of our link when we vanish."""
    if not settings.links.notifications:
        return None
    return Will(connection_state_topic(settings.broker_id), payload=DOWN, retain=True)


class HealthKeeper:
    """Tells how one agent is.

    Args:
        agent: Which; its connections need not be there yet.
    """

    def __init__(self, agent: "Agent") -> None:
        settings = agent.settings
        self._agent = agent
        self._topic = health_topic(settings.federation)
        self._state_topic = connection_state_topic(settings.broker_id)
        self._told: Health | None = None
        self._told_links: dict[ConnId, bytes] = {}

    def will(self) -> Will:
        """What our broker says of us when we vanish."""
        return Will(self._topic, payload=encode(self._gone("it vanished")), retain=True)

    async def run(self, ready: Ready) -> None:
        """Tell what changes within ``LOOK_S``, and all of it every ``EVERY_S``."""
        looks = 0
        while True:
            again = looks % round(EVERY_S / LOOK_S) == 0
            self._tell(ready, again=again)
            if self._agent.settings.links.notifications:
                self._tell_links(again=again)
            looks += 1
            await asyncio.sleep(LOOK_S)

    def withdraw(self) -> None:
        """We leave in order: say what the Wills would."""
        _say(self._agent.data_link, self._topic, encode(self._gone("it was stopped")))
        if self._agent.settings.links.notifications:
            for neighbour in self._agent.neighbours.all:
                if neighbour.data is not None:
                    _say(neighbour.data, self._state_topic, DOWN)

    def _tell(self, ready: Ready, *, again: bool) -> None:
        link = self._agent.data_link
        if not link.connected:
            self._told = None  # our Will stands there
            return
        health = self._health(*ready())
        if again or health != self._told:
            self._told = health
            _say(link, self._topic, encode(replace(health, at_us=wall_clock_us())))

    def _tell_links(self, *, again: bool) -> None:
        links = self._agent.node.links
        told: dict[ConnId, bytes] = {}
        for neighbour in self._agent.neighbours.all:
            conn, data = neighbour.conn, neighbour.data
            if conn is None or data is None or not data.connected:
                continue
            told[conn] = UP if any(k.conn == conn for k in links.up.values()) else DOWN
            if again or self._told_links.get(conn) != told[conn]:
                _say(data, self._state_topic, told[conn])
        self._told_links = told

    def _health(self, ready: bool, reason: str) -> Health:
        known = self._agent.node.links.neighbours
        links: dict[str, Literal["up", "down"]] = {
            str(id_): "up" if known[id_].up else "down" for id_ in sorted(known)[:LINKS_TOLD_MAX]
        }
        return self._word("ready" if ready else "not_ready", "" if ready else reason, links)

    def _gone(self, reason: str) -> Health:
        return self._word("down", reason, {})

    def _word(
        self,
        state: Literal["ready", "not_ready", "down"],
        reason: str,
        links: dict[str, Literal["up", "down"]],
    ) -> Health:
        return Health(
            version=HEALTH_VERSION,
            federation=self._agent.settings.federation,
            broker=self._agent.settings.broker_id,
            state=state,
            reason=reason,
            epoch=self._agent.epoch,
            release=version("federator"),
            links=links,
            at_us=0,
            every_s=EVERY_S,
        )


def _say(link: MqttLink, topic: str, payload: bytes) -> None:
    """Publish retained at QoS 0: a broker whose ACL forbids it drops it without a word."""
    if link.connected:
        link.write_packets((PublishPacket(topic, payload, retain=True).write(),), 1)

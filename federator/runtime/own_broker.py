"""The connections to our own broker: who we are there, and who hears what comes with data.

Control and data have one each, so that neither waits behind the other; what else needs its own
(looks at retained values, a member's place in a shared group) gets another. The control connection
is heard by ``control_handler``.
"""

import asyncio
from typing import TYPE_CHECKING, Final, Literal

from mqtt5 import Will

from federator.config import Settings
from federator.runtime.endpoints import endpoint_of
from federator.runtime.mqtt_link import Inbound, LinkHandler, MqttLink

if TYPE_CHECKING:
    from federator.runtime.agent import Agent

CONTROL_SESSION_EXPIRY_S: Final = 60
"""How long our broker keeps log lines for us while we are away."""

Role = Literal["ctl", "data", "looks"]


class OwnBroker:
    """Makes the connections of one agent to its own broker.

    Args:
        settings: Where it is.
        tasks: Runs the stand-ins.
    """

    def __init__(self, settings: Settings, tasks: asyncio.TaskGroup) -> None:
        self._settings = settings
        self._tasks = tasks

    def client_id(self, role: str) -> str:
        """Who we are there."""
        return f"federator-{self._settings.broker.id}-{role}"

    def link(
        self,
        role: Role,
        handler: LinkHandler,
        *,
        clean_start: bool = False,
        will: Will | None = None,
    ) -> MqttLink:
        """A connection for one purpose. Whoever asks for it runs it."""
        links = self._settings.links
        expiry_s = {"ctl": CONTROL_SESSION_EXPIRY_S, "data": self._settings.custody.keep_s}
        return MqttLink(
            endpoint_of(self._settings.broker),
            handler,
            client_id=self.client_id(role),
            clean_start=clean_start,
            session_expiry_s=expiry_s.get(role, 0),
            acknowledge=role != "data",
            will=will,
            reconnect_min_ms=links.reconnect_min_ms,
            reconnect_max_ms=links.reconnect_max_ms,
            send_queue_bytes_max=links.send_queue_bytes_max,
        )

    def stand_in(self, number: int, handler: LinkHandler) -> MqttLink:
        """A connection that is in shared groups only while it lives, and gives back nothing."""
        links = self._settings.links
        link = MqttLink(
            endpoint_of(self._settings.broker),
            handler,
            client_id=self.client_id(f"share-{number}"),
            reconnect_min_ms=links.reconnect_min_ms,
            reconnect_max_ms=links.reconnect_max_ms,
        )
        self._tasks.create_task(link.run(), name=f"stand-in {number}")
        return link


class DataHandler:
    """The data connection to our own broker."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """The broker accepted us."""
        self._agent.cover.on_up(session_present=session_present)
        self._agent.data_path.intake.on_local_up(session_present=session_present)

    def on_subscribed(self, link: MqttLink) -> None:
        """Our subscriptions stand."""
        self._agent.presence.look()

    def on_down(self, link: MqttLink, reason: str) -> None:
        """The connection ended."""
        self._agent.cover.on_down()
        self._agent.marks.on_down()
        self._agent.data_path.intake.on_local_down()
        if self._agent.retained is not None:
            self._agent.retained.on_data_down()
        self._agent.presence.on_lost(link)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """What one socket read brought."""
        packet_ids = [(p.packet_id, int(p.qos)) for p, _, _ in publishes if p.packet_id is not None]
        if packet_ids:
            self._agent.marks.note(publishes)
        self._agent.on_data(chunk, publishes)
        if packet_ids:
            self._agent.data_path.intake.acknowledge(link, packet_ids)

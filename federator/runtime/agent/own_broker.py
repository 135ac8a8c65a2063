"""Makes the connections to our own broker, each with a client id of its own.

Control and data have one each, so that neither waits behind the other; what else needs its own
(scans of retained values, a member's place in a shared group) gets another. All end in the secret
of our state folder: who could guess them could take our place, and what waits for us.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from mqtt5 import Will

from federator.config import Settings
from federator.protocol.client_names import OWN_PREFIX
from federator.runtime.mqtt.endpoint import endpoint_of
from federator.runtime.mqtt.link import LinkObserver, MqttLink
from federator.runtime.mqtt.transport import RECEIVE_BUFFER_BYTES

CONTROL_SESSION_EXPIRY_S: Final = 60
"""How long our broker keeps log lines for us while we are away."""

CONTROL_READ_BYTES: Final = 16_384
"""What one turn of the loop reads on the control connection, where a packet may cost much: some 150
lines of the log. Packets that are longer are still read whole."""

Role = Literal["ctl", "data", "retained"]


class _Nobody(LinkObserver):
    """Hears nothing, in place of a part that is made after the connection."""


@dataclass(eq=False, repr=False)
class OwnBroker:
    """Makes the connections of one agent to its own broker.

    Args:
        token: The secret part of our names.
    """

    settings: Settings
    tasks: asyncio.TaskGroup
    token: str

    def client_id(self, role: str) -> str:
        """Who we are there."""
        return f"{self._name(role)}-{self.token}"

    def former(self, observer: LinkObserver) -> MqttLink:
        """The data connection under the name that it had before names were secret."""
        return MqttLink(
            endpoint_of(self.settings.broker),
            observer,
            client_id=self._name("data"),
            clean_start=False,
            session_expiry_s=self.settings.custody.keep_s,
            acknowledge=False,
        )

    def _name(self, role: str) -> str:
        return f"{OWN_PREFIX}{self.settings.broker.id}-{role}"

    def link(
        self,
        role: Role,
        observer: LinkObserver | None = None,
        *,
        clean_start: bool = False,
        will: Will | Callable[[], Will] | None = None,
    ) -> MqttLink:
        """A connection for one purpose. Whoever asks for it runs it, once it has an observer."""
        links = self.settings.links
        expiry_s = {"ctl": CONTROL_SESSION_EXPIRY_S, "data": self.settings.custody.keep_s}
        return MqttLink(
            endpoint_of(self.settings.broker),
            observer or _Nobody(),
            client_id=self.client_id(role),
            clean_start=clean_start,
            session_expiry_s=expiry_s.get(role, 0),
            acknowledge=role != "data",
            will=will,
            read_bytes_max=CONTROL_READ_BYTES if role == "ctl" else RECEIVE_BUFFER_BYTES,
            reconnect_min_ms=links.reconnect_min_ms,
            reconnect_max_ms=links.reconnect_max_ms,
            send_queue_bytes_max=links.send_queue_bytes_max,
        )

    def stand_in(self, number: int, observer: LinkObserver) -> MqttLink:
        """A connection that is in shared groups only while it lives, and gives back nothing."""
        links = self.settings.links
        link = MqttLink(
            endpoint_of(self.settings.broker),
            observer,
            client_id=self.client_id(f"share-{number}"),
            reconnect_min_ms=links.reconnect_min_ms,
            reconnect_max_ms=links.reconnect_max_ms,
        )
        self.tasks.create_task(link.run(), name=f"stand-in {number}")
        return link

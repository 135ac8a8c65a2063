"""Whether we are at our own broker, and whether somebody else is there in our place.

We are there when clients' publications can come and other agents can speak to us: with the data
connection, and with the control connection and all that it subscribes.

Whoever connects under one of our names throws us out, be it a stranger who read the name in the
broker's log, or a copy of our state folder. We come back at once, backing off when it happens again
and again, and say who did it. Another agent with our *id* has names of its own, so it throws nobody
out: ``shared_broker_guard`` finds it, and then the younger gives way, with every connection.

Source: Mosquitto's log line "Client ID already connected, closing old connection.", before 2.1.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import structlog
from mqtt5 import PublishPacket

from federator.protocol.discovery.log_lines import ERROR_TOPIC
from federator.runtime.mqtt.failures import one_id
from federator.runtime.mqtt.link import MqttLink

ENDED_MAX: Final = 3
"""After so many that end while another stands it is no accident."""

DOUBTED_MAX: Final = 1
"""So many may be: a broker that dies ends all of them, one by one."""

NEXT_MOMENT_S: Final = 1.0
"""A connection that is closed so soon after the log's line was closed for that reason."""

_log = structlog.get_logger()


class TakeoverDetector:
    """Notices in the broker's log that another client takes the place of a connection of ours.

    MQTT has a reason code for that (0x8e), but Mosquitto before 2.0.15 just closes the connection
    of whoever was there first. A client that hears in the log that its place is being taken, and is
    closed the next moment, was thrown out by another one.
    """

    def __init__(
        self, client_ids: Iterable[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lines = {
            f"Client {id} already connected, closing old connection.".encode(): id
            for id in client_ids
        }
        self._clock = clock
        self._taken_at_s: dict[str, float] = {}

    def on_log(self, topic: str, payload: bytes) -> None:
        """Note a line of the broker's log."""
        if topic != ERROR_TOPIC:
            return
        for line, client_id in self._lines.items():
            if payload.endswith(line):
                self._taken_at_s[client_id] = self._clock()

    def threw_out(self, client_id: str) -> bool:
        """Whether another client made the broker close ``client_id`` just now."""
        taken_at_s = self._taken_at_s.pop(client_id, None)
        return taken_at_s is not None and self._clock() - taken_at_s < NEXT_MOMENT_S


@dataclass(kw_only=True, eq=False, repr=False)
class OwnBrokerPresence:
    """Whether one agent is at its own broker, with both its connections.

    Args:
        username: As whom we log in, if at all.
        others: What else gives way with them.
        changed: Told when we came or went, with ``up``.
        complete: Whether all is there that must be before we are; when it is later, ``update``.

    Attributes:
        has_rival: Another agent with our id is there, and we leave it the place.
        ended: How many ended while another stood, before we were there with both.
        one_id: Why that is so, if it is the rule.
    """

    broker: int
    url: str
    control: MqttLink
    data: MqttLink
    others: Callable[[], Iterable[MqttLink]]
    changed: Callable[[bool], None]
    username: str | None = None
    complete: Callable[[], bool] = lambda: True
    looked: Callable[[], None] = lambda: None  # told after each ``update``
    up: bool = field(default=False, init=False)
    has_rival: bool = field(default=False, init=False)
    one_id: str = field(default="", init=False)
    ended: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._takeovers = TakeoverDetector([self.control.client_id, self.data.client_id])

    def on_log(self, packet: PublishPacket) -> None:
        """Note a line of the broker's log, which may tell that somebody takes our place."""
        self._takeovers.on_log(packet.topic, packet.payload)

    def update(self) -> None:
        """One of the two connections came or went."""
        control = self.control
        # A subscription more on its way, to see how the broker counts, is no absence.
        heard = control.subscribed or (self.up and control.connected)
        up = heard and self.data.connected and (self.up or self.complete())
        if up != self.up:
            self.up = up
            if up:
                self.has_rival, self.one_id = False, ""
            self.ended = 0
            self.changed(up)
        self.looked()

    @property
    def doubts(self) -> bool:
        """Whether the session of a connection may be that of another one of ours."""
        return self.ended > DOUBTED_MAX

    def on_lost(self, link: MqttLink) -> None:
        """One of the two is gone; say so when somebody else came under its name."""
        seen = link.closed_by_broker and self._takeovers.threw_out(link.client_id)
        if seen or link.taken_over:
            _log.warning("connection.taken_over", client_id=link.name, broker=self.url)
        ended = link.closed_by_broker or link.taken_over
        links = (self.control, self.data, *self.others())
        if ended and self.username and not self.up:
            self.ended += any(each.connected for each in links if each is not link)
            if self.ended == ENDED_MAX and not self.one_id:
                self.one_id = one_id(self.username)
                _log.error("broker.one_id", broker=self.url, reason=self.one_id)
        self.update()

    def give_way(self) -> None:
        """Leave our broker, for a while, to another agent with our id, which proved to be one."""
        if not self.has_rival:
            self.has_rival = True
            _log.error("id.taken_over", id=self.broker, broker=self.url)
            for link in (self.control, self.data, *self.others()):
                link.give_way()

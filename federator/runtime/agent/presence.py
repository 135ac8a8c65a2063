"""Whether we are present at our own broker, and whether another client took our place.

We are present when we can receive clients' publications and other agents' messages: with the data
connection, and with the control connection and all its subscriptions.

A client that connects under one of our client ids disconnects us: a stranger that read the id in
the broker's log, or a copy of our state folder. We reconnect at once, backing off when it happens
repeatedly, and log it. Another agent with our *id* has client ids of its own, so it disconnects
none of ours: ``shared_broker_guard`` finds it, and then the younger gives way, with every
connection.

Source: Mosquitto's log line "Client ID already connected, closing old connection.", before 2.1.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import structlog
from mqtt5 import PublishPacket

from federator.config.brokers import BrokerSettings
from federator.protocol.discovery.log_lines import ERROR_TOPIC
from federator.runtime.mqtt.failures import one_id
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.parts import Part

ENDED_MAX: Final = 3
"""So many connections that end while another stands are no accident."""

DOUBTED_MAX: Final = 1
"""So many may be an accident: a broker that dies ends all of them, one by one."""

NEXT_MOMENT_S: Final = 1.0
"""A connection that closes this soon after the log line was closed for that reason."""

_log = structlog.get_logger()


class TakeoverDetector:
    """Notices in the broker's log that another client takes over a connection of ours.

    MQTT has a reason code for that (0x8e), but Mosquitto before 2.0.15 just closes the older
    connection. A client that reads in the log that its id is being taken, and is closed within the
    next moment, was disconnected by another client.
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

    def on_log(self, packet: PublishPacket) -> None:
        """Note a line of the broker's log, on ``ERROR_TOPIC``."""
        for line, client_id in self._lines.items():
            if packet.payload.endswith(line):
                self._taken_at_s[client_id] = self._clock()

    def threw_out(self, client_id: str) -> bool:
        """Whether another client just made the broker close ``client_id``."""
        taken_at_s = self._taken_at_s.pop(client_id, None)
        return taken_at_s is not None and self._clock() - taken_at_s < NEXT_MOMENT_S


@dataclass(kw_only=True, eq=False, repr=False)
class OwnBrokerPresence:
    """Whether one agent is present at its own broker, with both its connections.

    Args:
        others: Further connections that give way together.
        changed: Called with ``up`` when our presence changes.
        complete: Whether everything else is ready; if it becomes ready later, call ``update``.

    Attributes:
        has_rival: Another agent with our id is there, and we give way to it.
        ended: How many connections ended while another stood, before we were present with both.
        one_id: Why that is so, if it is the rule.
    """

    broker: BrokerSettings
    control: MqttLink
    data: MqttLink
    others: Callable[[], Iterable[MqttLink]]
    changed: Callable[[bool], None]
    complete: Callable[[], bool] = lambda: True
    looked: Callable[[], None] = lambda: None  # called after each ``update``
    up: bool = field(default=False, init=False)
    has_rival: bool = field(default=False, init=False)
    one_id: str = field(default="", init=False)
    ended: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._takeovers = TakeoverDetector([self.control.client_id, self.data.client_id])

    def part(self) -> Part:
        return Part(topics={ERROR_TOPIC: self._takeovers.on_log})

    def why_not(self) -> str:
        """Why we cannot receive what is published at our broker; empty if we can."""
        place = f"broker {self.broker.reached_at}"
        if self.has_rival:
            return f"{place}: another agent with id {self.broker.id} is there: stop one of them"
        if self.one_id:
            return f"{place}: {self.one_id}"
        for link in (self.control, self.data):
            if not link.connected:
                return f"{place}: {link.last_error or 'not connected yet'}"
        return "" if self.up else "subscribing on our broker"

    def is_up(self) -> bool:
        return self.up

    def update(self) -> None:
        """Recompute the presence: one of the two connections came or went."""
        control = self.control
        # A further unanswered subscription, to see how the broker counts, is no absence.
        receives = control.subscribed or (self.up and control.connected)
        up = receives and self.data.connected and (self.up or self.complete())
        if up != self.up:
            self.up = up
            if up:
                self.has_rival, self.one_id = False, ""
            self.ended = 0
            self.changed(up)
        self.looked()

    @property
    def doubts(self) -> bool:
        """Whether the session of a connection may be that of another of our connections."""
        return self.ended > DOUBTED_MAX

    def on_lost(self, link: MqttLink) -> None:
        """A connection of the two ended; log it if another client took over its id."""
        seen = link.closed_by_broker and self._takeovers.threw_out(link.client_id)
        if seen or link.taken_over:
            _log.warning(
                "connection.taken_over", client_id=link.name, broker=self.broker.reached_at
            )
        ended = link.closed_by_broker or link.taken_over
        links = (self.control, self.data, *self.others())
        if ended and self.broker.username and not self.up:
            self.ended += any(other.connected for other in links if other is not link)
            if self.ended == ENDED_MAX and not self.one_id:
                self.one_id = one_id(self.broker.username)
                _log.error("broker.one_id", broker=self.broker.reached_at, reason=self.one_id)
        self.update()

    def give_way(self) -> None:
        """Leave our broker, for a while, to another proven agent with our id."""
        if not self.has_rival:
            self.has_rival = True
            _log.error("id.taken_over", id=self.broker.id, broker=self.broker.reached_at)
            for link in (self.control, self.data, *self.others()):
                link.give_way()

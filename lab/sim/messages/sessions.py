"""What a broker holds for one client id: subscriptions, messages in flight, messages that wait.

A session is a pigeonhole with a small tray in front. The tray (in flight) holds what the client was
handed and has not acknowledged; the pigeonhole (queue) what comes after it; what finds the
pigeonhole full falls on the floor, and nobody is told.

Source: OASIS MQTT 5.0, sections 3.1.2.11 and 4.4.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from federator.protocol.types import BrokerId
from lab.sim.topics import topic_matches

IN_FLIGHT_MAX = 20  # ``max_inflight_messages`` of Mosquitto, and its Receive Maximum


@dataclass(frozen=True, slots=True)
class Message:
    """One application message, as a broker routes it."""

    topic: str
    qos: int  # 0 or 1, of this copy
    number: int = -1  # of the publication in this world; -1 for what the broker itself says
    payload: bytes = b""
    expires_at_ms: int | None = None
    stored: bool = False  # A retained message, sent because somebody subscribed
    retain: bool = False  # the broker is to store it
    duplicate: bool = False  # the broker hands it over again, on another connection
    properties: tuple[tuple[str, str], ...] = ()  # User Properties


Receiver = Callable[["Session", int, int, Message], None]
"""Called with (session, connection, packet id, message); packet id 0 needs no acknowledgement."""


@dataclass(slots=True, eq=False)
class Session:
    """The broker's state for one client id."""

    client_id: str
    persistent: bool  # outlives the connection
    expiry_ms: int | None = None  # how long it does; ``None``: for ever
    no_local: bool = False  # it gets nothing that it published itself
    filters: dict[str, int] = field(default_factory=dict)  # subscriptions, with their QoS
    receiver: Receiver | None = None  # where messages go; ``None`` while the client is away
    connection: int = 0  # of this session, counted from 1
    in_flight: dict[int, Message] = field(default_factory=dict)  # by packet id, in the order sent
    queue: deque[Message] = field(default_factory=deque)
    packet_ids: int = 0
    dropping: bool = False  # the log has said so

    def qos_of(self, topic: str) -> int | None:
        """The QoS that this client asked for on ``topic``: the lowest of all filters that match.

        ``None`` when none does. One copy for all filters, as MQTT 3.1.1 clients get it.
        """
        found = [qos for filter, qos in self.filters.items() if topic_matches(filter, topic)]
        return min(found, default=None)

    def waiting(self) -> list[Message]:
        """Everything that the client has not acknowledged, oldest first."""
        return [*self.in_flight.values(), *self.queue]

    def at_rest(self) -> "Session":
        """A copy with nobody connected: what the broker's database has, and what it starts with."""
        return replace(
            self,
            filters=dict(self.filters),
            receiver=None,
            connection=0,
            in_flight=dict(self.in_flight),
            queue=deque(self.queue),
            dropping=False,
        )


def control_client_id(id: BrokerId) -> str:
    return f"federator-{id}-ctl"


def data_client_id(id: BrokerId) -> str:
    return f"federator-{id}-data"

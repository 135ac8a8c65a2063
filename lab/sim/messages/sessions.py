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

IN_FLIGHT_MAX = 20
"""``max_inflight_messages`` of Mosquitto, and its Receive Maximum."""


@dataclass(frozen=True, slots=True)
class Message:
    """One application message, as a broker routes it.

    Attributes:
        qos: 0 or 1, of this copy.
        number: Of the publication in this world; -1 for what the broker itself says.
        stored: A retained message, sent because somebody subscribed.
        retain: The broker is to store it.
        duplicate: The broker hands it over again, on another connection.
    """

    topic: str
    qos: int
    number: int = -1
    payload: bytes = b""
    expires_at_ms: int | None = None
    stored: bool = False
    retain: bool = False
    duplicate: bool = False


Receiver = Callable[["Session", int, int, Message], None]
"""Called with (session, connection, packet id, message); packet id 0 needs no acknowledgement."""


@dataclass(slots=True, eq=False)
class Session:
    """The broker's state for one client id.

    Attributes:
        persistent: Outlives the connection.
        expiry_ms: How long it does; ``None``: for ever.
        filters: Subscriptions, with their QoS.
        no_local: It gets nothing that it published itself.
        receiver: Where messages go; ``None`` while the client is away.
        connection: Which connection of this session, counted from 1.
        in_flight: By packet id, in the order sent.
        dropping: The log has said so.
    """

    client_id: str
    persistent: bool
    expiry_ms: int | None = None
    no_local: bool = False
    filters: dict[str, int] = field(default_factory=dict)
    receiver: Receiver | None = None
    connection: int = 0
    in_flight: dict[int, Message] = field(default_factory=dict)
    queue: deque[Message] = field(default_factory=deque)
    packet_ids: int = 0
    dropping: bool = False

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
    """The client id of an agent's control connection."""
    return f"federator-{id}-ctl"


def data_client_id(id: BrokerId) -> str:
    """The client id of an agent's data connection."""
    return f"federator-{id}-data"

"""A broker that knows who subscribes to what, and prints it as Mosquitto does.

Deliberately naive: sessions are dictionaries, lines are format strings copied from Mosquitto's C.
"""

from dataclasses import dataclass, field

from federator.protocol.discovery.log_lines import (
    LINE_BYTES_MAX,
    NOTICE_TOPIC,
    SUBSCRIBE_TOPIC,
    UNSUBSCRIBE_TOPIC,
    ClientConnected,
    ClientEnded,
    ClientEvent,
    Dropping,
    SessionExpired,
    Subscribed,
    Unsubscribed,
)

PRINTED_PROTOCOL = {"2.0.11": {3: 1, 4: 2, 5: 5}}


def printed(
    event: ClientEvent, *, version: str, timestamp: str = "1700000000: "
) -> tuple[str, bytes]:
    """Topic and payload of the line that Mosquitto ``version`` prints for ``event``."""
    topic = NOTICE_TOPIC
    match event:
        case Subscribed():
            topic = SUBSCRIBE_TOPIC
            text = f"{event.id} {event.qos} {event.filter}"
        case Unsubscribed():
            topic = UNSUBSCRIBE_TOPIC
            text = f"{event.id} {event.filter}"
        case ClientConnected():
            protocol = PRINTED_PROTOCOL.get(version, {}).get(event.protocol, event.protocol)
            text = (
                f"New client connected from 127.0.0.1:4711 as {event.id} "
                f"(p{protocol}, c{int(event.clean)}, k60)."
            )
        case ClientEnded():
            address = " [127.0.0.1:4711]" if version == "2.1.2" else ""
            text = f"Client {event.id}{address} disconnected."
        case SessionExpired():
            text = f"Expiring client {event.id} due to timeout."
        case Dropping():
            text = f"Outgoing messages are being dropped for client {event.id}."
    return topic, (timestamp + text).encode()[:LINE_BYTES_MAX]


@dataclass
class Session:
    """What the broker knows of one client."""

    protocol: int
    clean: bool
    expiry_s: int
    connected: bool = True
    filters: set[str] = field(default_factory=set)

    @property
    def outlives_connection(self) -> bool:
        return self.expiry_s > 0 if self.protocol == 5 else not self.clean


class ModelBroker:
    """Executes what clients do and returns the events that Mosquitto would log."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}

    def connect(self, id: str, *, protocol: int, clean: bool, expiry_s: int) -> list[ClientEvent]:
        old = self.sessions.get(id)
        kept = set()
        if old is not None and not clean and old.outlives_connection:
            kept = old.filters
        self.sessions[id] = Session(protocol, clean, expiry_s, filters=kept)
        return [ClientConnected(id, clean, protocol)]

    def disconnect(self, id: str) -> list[ClientEvent]:
        session = self.sessions[id]
        session.connected = False
        if not session.outlives_connection:
            del self.sessions[id]
        return [ClientEnded(id)]

    def expire(self, id: str) -> list[ClientEvent]:
        del self.sessions[id]
        return [SessionExpired(id)]

    def subscribe(self, id: str, filter: str) -> list[ClientEvent]:
        self.sessions[id].filters.add(filter)
        return [Subscribed(id, 1, filter)]

    def unsubscribe(self, id: str, filter: str) -> list[ClientEvent]:
        self.sessions[id].filters.discard(filter)
        return [Unsubscribed(id, filter)]

    def restart(self, *, persistence: bool) -> None:
        """All connections are gone; so are all sessions, but for persistent ones when kept."""
        self.sessions = {
            id: session
            for id, session in self.sessions.items()
            if persistence and session.outlives_connection
        }
        for session in self.sessions.values():
            session.connected = False

    @property
    def filters(self) -> set[str]:
        """Everything anybody subscribes to."""
        return {filter for session in self.sessions.values() for filter in session.filters}

    def count(self, *, shared: bool) -> int:
        """As in ``$SYS``."""
        return sum(
            filter.startswith("$share/") is shared
            for session in self.sessions.values()
            for filter in session.filters
        )

    @property
    def connected(self) -> int:
        """As in ``$SYS``."""
        return sum(session.connected for session in self.sessions.values())

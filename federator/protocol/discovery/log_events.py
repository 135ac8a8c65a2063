"""What one line of the broker's log says about its clients.

Source: docs/protocol.md section 9; Mosquitto's ``handle_connect.c``, ``loop.c``,
``handle_subscribe.c``, ``handle_unsubscribe.c``, ``session_expiry.c`` and ``database.c``.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientConnected:
    """A client connected, perhaps taking over from an older connection of the same id.

    ``clean`` is Clean Session (MQTT 3) or Clean Start (MQTT 5); ``protocol`` is 3, 4 or 5.
    """

    id: str
    clean: bool
    protocol: int


@dataclass(frozen=True, slots=True)
class ClientEnded:
    """A connection ended. Whether its session did is another matter."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """The broker forgot the session of a client that was away."""

    id: str


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription was granted. A ``cut`` filter is only the beginning of the true one."""

    id: str
    qos: int
    filter: str
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """A client unsubscribed, whether or not it had subscribed. ``cut`` as in ``Subscribed``."""

    id: str
    filter: str
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Dropping:
    """The client's queue is full: the broker throws its messages away."""

    id: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The line may have told something, but it cannot be said what or about whom."""

    line: str
    subscription: bool  # it stood on the topic of subscriptions


ClientEvent = ClientConnected | ClientEnded | SessionExpired | Subscribed | Unsubscribed | Dropping


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """One of ``candidates`` is true, and nobody can tell which.

    ``cut`` says that the line ended before its end, so perhaps none of them is.
    """

    line: str
    candidates: tuple[ClientEvent, ...]
    cut: bool = False


LogEvent = ClientEvent | Ambiguous | Unreadable

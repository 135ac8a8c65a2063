"""Reads Mosquitto's log topics: one line in, what it says about a client out.

Mosquitto prints client ids and filters without quotes, and both may contain spaces, so
``sp 0 ace 0 t/1`` is either client ``sp`` with filter ``ace 0 t/1`` or client ``sp 0 ace`` with
``t/1``. The reader therefore collects **every** reading that the grammar allows, strikes those
whose client is not connected (only when we know all that are), and says ``Ambiguous`` when more
than one is left. Whoever crafts an id that looks like a log line only adds readings: it cannot take
the true one away.

Three dialects: 2.0.x, 2.1.0 (MQTT 5 reasons, other protocol numbers), and from 2.1.1 the client's
address in brackets. Lines end after ``LINE_BYTES_MAX`` bytes, perhaps inside a character.

Source: Mosquitto's sources 2.0.11, 2.0.22, 2.1.0, 2.1.1, 2.1.2 (see ``log_events``).
"""

import re
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Protocol

from federator.protocol.discovery.log_events import (
    Ambiguous,
    ClientConnected,
    ClientEnded,
    ClientEvent,
    Dropping,
    LogEvent,
    SessionExpired,
    Subscribed,
    Unreadable,
    Unsubscribed,
)
from federator.protocol.discovery.log_timestamps import LOG_ROOT, TimestampShape
from federator.protocol.filters import validate_filter

LINE_BYTES_MAX = 999
READINGS_MAX = 8

SUBSCRIBE_TOPIC = LOG_ROOT + "M/subscribe"
UNSUBSCRIBE_TOPIC = LOG_ROOT + "M/unsubscribe"
NOTICE_TOPIC = LOG_ROOT + "N"
ERROR_TOPIC = LOG_ROOT + "E"
LOG_TOPICS = (SUBSCRIBE_TOPIC, UNSUBSCRIBE_TOPIC, NOTICE_TOPIC, ERROR_TOPIC)

_QOS = re.compile(r"(?= ([012]) )")
_CONNECT = re.compile(r"New (?:client|bridge) connected from \S*:\d+ as (.+)", re.DOTALL)
_CONNECT_TAIL = re.compile(
    r"(?= \(p(\d), c([01]), k\d+(?:\)\.|, u'.*'\)\.)\Z)",
    re.DOTALL,
)
_END_UNTIL_2_1_0 = re.compile(
    r"(?= (?:disconnected(?:\.|(?: due to |, |: )([^.]*)\.)"
    r"|(closed its connection|has exceeded timeout, disconnecting"
    r"|been disconnected by administrative action|already connected, closing old connection)\.)\Z)"
)
_END_FROM_2_1_1 = re.compile(r"(?= \[[^\[\] ]*:\d+\] disconnected(?:\.|: (.+))\Z)", re.DOTALL)
_BAD_SOCKET = "Bad socket read/write on client "
_REASON = re.compile(r"(?=: (.*)\Z)", re.DOTALL)
_EXPIRED = re.compile(r"Expiring client (.+) due to timeout\.", re.DOTALL)
_DROPPING = re.compile(r"Outgoing messages are being dropped for client (.+)\.", re.DOTALL)
_VERSION = re.compile(r"mosquitto version (\d+)\.(\d+)(?:\.(\d+))?")
_PROTOCOL_IN_2_0 = {1: 3, 2: 4}


class Dialect(Enum):
    """How this broker reports that a connection ended."""

    UNTIL_2_1_0 = "until 2.1.0"
    FROM_2_1_1 = "from 2.1.1"


class KnownClients(Protocol):
    """What is known of the clients that are connected now."""

    @property
    def complete(self) -> bool:
        """No client is connected but the known ones."""

    def is_connected(self, id: str) -> bool:
        """The client is connected, as far as is known."""


class LogReader:
    """Turns log messages into events.

    Args:
        own_id: Client id of the connection that subscribes to the log.
        known: Tells readings of one line apart.
    """

    def __init__(self, *, own_id: str, known: KnownClients) -> None:
        self.timestamps = TimestampShape(own_id)
        self.dialect: Dialect | None = None
        self._known = known

    def on_version(self, text: str) -> None:
        """Take the dialect from ``$SYS/broker/version``; without one, every dialect is tried."""
        found = _VERSION.match(text)
        if found is None:
            self.dialect = None
            return
        version = tuple(int(part or 0) for part in found.groups())
        self.dialect = Dialect.FROM_2_1_1 if version >= (2, 1, 1) else Dialect.UNTIL_2_1_0

    def read(self, topic: str, payload: bytes) -> LogEvent | None:
        """What the line says, or ``None`` when it concerns no subscriptions. Never raises."""
        cut = len(payload) >= LINE_BYTES_MAX
        try:
            line = _decode(payload, cut=cut)
        except UnicodeDecodeError:
            return Unreadable(ascii(payload), topic == SUBSCRIBE_TOPIC)
        if topic == SUBSCRIBE_TOPIC:
            self.timestamps.learn(line)
        text = self.timestamps.strip(line)
        if topic == SUBSCRIBE_TOPIC:
            if text is None:
                return Unreadable(line, subscription=True)
            return self._pick(line, _subscriptions(text, cut=cut), cut=cut) or Unreadable(
                line, subscription=True
            )
        if text is None:
            return Unreadable(line, subscription=False)
        if topic == UNSUBSCRIBE_TOPIC:
            return self._pick(line, _unsubscriptions(text, cut=cut), cut=cut) or Unreadable(
                line, subscription=False
            )
        if topic in (NOTICE_TOPIC, ERROR_TOPIC):
            return self._life_cycle(line, text, cut=cut)
        return None

    def _life_cycle(self, line: str, text: str, *, cut: bool) -> LogEvent | None:
        if found := _CONNECT.fullmatch(text):
            connects = list(_connects(found.group(1)))
            if not connects:
                return Unreadable(line, subscription=False)
            return connects[0] if len(connects) == 1 else _ambiguous(line, connects, cut=cut)
        if found := _EXPIRED.fullmatch(text):
            return SessionExpired(found.group(1))
        if found := _DROPPING.fullmatch(text):
            return Dropping(found.group(1))
        if text.startswith(_BAD_SOCKET):
            return self._pick(line, _ends(_REASON, text[len(_BAD_SOCKET) :]), cut=cut)
        if text.startswith("Client "):
            rest = text[len("Client ") :]
            ends: list[ClientEvent] = []
            if self.dialect is not Dialect.UNTIL_2_1_0:
                ends += _ends(_END_FROM_2_1_1, rest)
            if self.dialect is not Dialect.FROM_2_1_1:
                ends += _ends(_END_UNTIL_2_1_0, rest)
            return self._pick(line, ends, cut=cut)
        return None

    def _pick(self, line: str, readings: list[ClientEvent], *, cut: bool) -> LogEvent | None:
        """The reading that is left when those of clients that are not there are struck.

        A line that was cut could be about a client whose very id was cut, so there even a single
        reading counts only when all connected clients are known.
        """
        if self._known.complete and (len(readings) > 1 or cut):
            connected = [each for each in readings if self._known.is_connected(each.id)]
            if len(connected) == 1:
                return connected[0]
            readings = connected or readings
        if not readings:
            return None
        if len(readings) == 1 and not cut:
            return readings[0]
        return _ambiguous(line, readings, cut=cut)


def _ambiguous(line: str, readings: list[ClientEvent], *, cut: bool) -> LogEvent:
    if len(readings) > READINGS_MAX:
        return Unreadable(line, any(isinstance(each, Subscribed) for each in readings))
    return Ambiguous(line, tuple(readings), cut)


def _decode(payload: bytes, *, cut: bool) -> str:
    """The text of a line; a character cut in two at its end is dropped."""
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        if cut and error.start >= len(payload) - 3 and error.reason == "unexpected end of data":
            return payload[: error.start].decode()
        raise


def _subscriptions(text: str, *, cut: bool) -> list[ClientEvent]:
    return [
        Subscribed(text[: at.start()], int(at.group(1)), text[at.start() + 3 :], cut)
        for at in _QOS.finditer(text, 1)
        if _is_filter(text[at.start() + 3 :], cut=cut)
    ]


def _unsubscriptions(text: str, *, cut: bool) -> list[ClientEvent]:
    return [
        Unsubscribed(text[:at], text[at + 1 :], cut)
        for at in _positions(text.find, " ")
        if _is_filter(text[at + 1 :], cut=cut)
    ]


def _positions(find: Callable[[str, int], int], wanted: str) -> Iterator[int]:
    at = find(wanted, 1)
    while at >= 0:
        yield at
        at = find(wanted, at + 1)


def _connects(rest: str) -> Iterator[ClientEvent]:
    for at in _CONNECT_TAIL.finditer(rest, 1):
        protocol = int(at.group(1))
        yield ClientConnected(
            id=rest[: at.start()],
            clean=at.group(2) == "1",
            protocol=_PROTOCOL_IN_2_0.get(protocol, protocol),
        )


def _ends(tail: re.Pattern[str], rest: str) -> list[ClientEvent]:
    ends: list[ClientEvent] = []
    for at in tail.finditer(rest, 1):
        reason = next((group for group in at.groups() if group), "disconnected")
        ends.append(ClientEnded(rest[: at.start()], reason.removesuffix(".")))
    return ends


def _is_filter(text: str, *, cut: bool) -> bool:
    """Whether ``text`` can be a filter or, when ``cut``, the beginning of one."""
    try:
        validate_filter(text + "x" if cut and not text.endswith(("#", "+")) else text)
    except ValueError:
        # A share name may be cut before the filter begins.
        return cut and text.startswith("$share/")
    return True

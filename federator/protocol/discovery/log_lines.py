"""Reads Mosquitto's log topics: one line in, an event about a client out.

Mosquitto prints client ids and filters without quotes, and both may contain spaces, so ``sp 0 ace 0
t/1`` is either client ``sp`` with filter ``ace 0 t/1`` or client ``sp 0 ace`` with ``t/1``. The
reader therefore collects **every** reading that the grammar allows, removes those whose client is
not connected (only when we know all connected clients), and returns ``Ambiguous`` when more than
one is left. A client with an id that looks like a log line only adds readings: it cannot remove the
true one.

The timestamp before each line may have any ``strftime`` format, or be switched off, so no fixed
pattern works. But one line is known word for word except for its timestamp: the one that reports
our own subscription to the log, the first line that a new subscriber gets. The text before our
client id in that line is the timestamp; its shape (digits, words, signs) strips the timestamp from
every other line. A client that imitates that line can only put **more** before our id, so the
shortest shape wins.

Three dialects: 2.0.x, 2.1.0 (MQTT 5 reasons, other protocol numbers), and from 2.1.1 the client's
address in brackets. Lines end after ``LINE_BYTES_MAX`` bytes, perhaps inside a character.

Source: docs/protocol.md 9; Mosquitto 2.0.11, 2.0.22, 2.1.0, 2.1.1 and 2.1.2: ``logging.c``,
``handle_connect.c``, ``loop.c``, ``handle_subscribe.c``, ``handle_unsubscribe.c``,
``session_expiry.c`` and ``database.c``.
"""

import re
from dataclasses import dataclass

from federator.protocol.discovery.subscription_table import SubscriptionTable
from federator.protocol.filters import SHARE, validate_filter


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
    """A connection ended. The session may live on."""

    id: str


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """The broker dropped the session of a client that was offline."""

    id: str


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The broker granted a subscription. A ``cut`` filter is only the beginning of the real one."""

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
    """The client's queue is full: the broker drops messages for it."""

    id: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A line that may report a change, but cannot be parsed."""

    line: str
    subscription: bool  # it was published on the topic of subscriptions


ClientEvent = ClientConnected | ClientEnded | SessionExpired | Subscribed | Unsubscribed | Dropping


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """A line with several readings: one of ``candidates`` is true, but which one is unknown.

    ``cut``: the line was cut off, so perhaps none of them is true.
    """

    line: str
    candidates: tuple[ClientEvent, ...]
    cut: bool = False


LogEvent = ClientEvent | Ambiguous | Unreadable


LOG_ROOT = "$SYS/broker/log/"

_EPOCH = re.compile(r"\d{9,11}: ")
_RUNS = re.compile(r"(\d+)|([^\W\d_]+)|( +)|.", re.DOTALL)
PREFIX_CHARS_MAX = 256


class TimestampShape:
    """Strips timestamps. Before it has learned a shape, it strips leading seconds since 1970."""

    def __init__(self, own_id: str) -> None:
        self._own_line = re.compile(
            rf"(.*?)(?<!\S){re.escape(own_id)} [012] {re.escape(LOG_ROOT)}", re.DOTALL
        )
        self.forget()

    def forget(self) -> None:
        """Forget the learned shape: the broker may have been reconfigured."""
        self._learned: re.Pattern[str] | None = None
        self._learned_from = ""

    def learn(self, line: str) -> None:
        """Learn the timestamp's shape if this line of the subscriptions topic is about us."""
        if (own := self._own_line.match(line)) is None:
            return
        prefix = own.group(1)
        if len(prefix) > PREFIX_CHARS_MAX or (prefix and not prefix.endswith(": ")):
            return
        if self._learned is None or len(prefix) < len(self._learned_from):
            self._learned = _shape_of(prefix)
            self._learned_from = prefix

    def strip(self, line: str) -> str | None:
        """Return ``line`` without its timestamp; ``None`` when that does not match."""
        if self._learned is None:
            match = _EPOCH.match(line)
            return line[match.end() :] if match else line
        match = self._learned.match(line)
        return line[match.end() :] if match else None


def _shape_of(prefix: str) -> re.Pattern[str]:
    if not prefix:
        return re.compile("")
    if _EPOCH.fullmatch(prefix):
        return _EPOCH
    shape = _RUNS.sub(_shape_of_run, prefix.removesuffix(": "))
    return re.compile(shape + ": ")  # one blank: an id may begin with more


def _shape_of_run(run: re.Match[str]) -> str:
    if run.lastindex is not None:
        return (r"\d+", r"[^\W\d_]+", " +")[run.lastindex - 1]
    return "[+-]" if run.group() in "+-" else re.escape(run.group())


LINE_BYTES_MAX = 999
READINGS_MAX = 8

SUBSCRIBE_TOPIC = LOG_ROOT + "M/subscribe"
UNSUBSCRIBE_TOPIC = LOG_ROOT + "M/unsubscribe"
NOTICE_TOPIC = LOG_ROOT + "N"
ERROR_TOPIC = LOG_ROOT + "E"
LOG_TOPICS = (SUBSCRIBE_TOPIC, UNSUBSCRIBE_TOPIC, NOTICE_TOPIC, ERROR_TOPIC)

_QOS = re.compile(r"(?= ([012]) )")
_CONNECT = re.compile(r"New (?:client|bridge) connected from \S*:\d+ as (.+)", re.DOTALL)
_CONNECT_TAIL = re.compile(r"(?= \(p(\d), c([01]), k\d+(?:, u'.*')?\)\.\Z)", re.DOTALL)
_END_UNTIL_2_1_0 = re.compile(
    r"(?= (?:disconnected(?:\.|(?: due to |, |: )[^.]*\.)"
    r"|(?:closed its connection|has exceeded timeout, disconnecting"
    r"|been disconnected by administrative action|already connected, closing old connection)\.)\Z)"
)
_END_FROM_2_1_1 = re.compile(r"(?= \[[^\[\] ]*:\d+\] disconnected(?:\.|: .+)\Z)", re.DOTALL)
_ENDS: tuple[re.Pattern[str], ...] = (_END_FROM_2_1_1, _END_UNTIL_2_1_0)
_BAD_SOCKET = "Bad socket read/write on client "
_REASON = re.compile(r"(?=: )")
_EXPIRED = re.compile(r"Expiring client (.+) due to timeout\.", re.DOTALL)
_DROPPING = re.compile(r"Outgoing messages are being dropped for client (.+)\.", re.DOTALL)
_VERSION = re.compile(r"mosquitto version (\d+)\.(\d+)(?:\.(\d+))?")
_PROTOCOLS_IN_2_0 = {"1": 3, "2": 4}


class LogReader:
    """Turns log messages into events.

    Args:
        known: The connected clients, by which readings of one line are told apart.
    """

    def __init__(self, *, own_id: str, known: SubscriptionTable) -> None:
        self.timestamps = TimestampShape(own_id)
        self._table = known
        self._ends = _ENDS

    def on_version(self, text: str) -> None:
        """Choose the dialect by ``$SYS/broker/version``; try all if it is unknown."""
        self._ends = _ENDS
        if (match := _VERSION.match(text)) is not None:
            version = tuple(int(part or 0) for part in match.groups())
            self._ends = _ENDS[:1] if version >= (2, 1, 1) else _ENDS[1:]

    def read(self, topic: str, payload: bytes) -> LogEvent | None:
        """Parse a line; ``None`` when it concerns no subscriptions. Never raises."""
        cut, subscription = len(payload) >= LINE_BYTES_MAX, topic == SUBSCRIBE_TOPIC
        try:
            line = _decode(payload, cut=cut)
        except UnicodeDecodeError:
            return Unreadable(ascii(payload), subscription)
        if subscription:
            self.timestamps.learn(line)
        text = self.timestamps.strip(line)
        unreadable = Unreadable(line, subscription)
        if text is None:
            return unreadable
        if subscription:
            return self._pick(line, _subscriptions(text, cut=cut), cut=cut) or unreadable
        if topic == UNSUBSCRIBE_TOPIC:
            return self._pick(line, _unsubscriptions(text, cut=cut), cut=cut) or unreadable
        if topic in (NOTICE_TOPIC, ERROR_TOPIC):
            return self._life_cycle(line, text, cut=cut)
        return None

    def _life_cycle(self, line: str, text: str, *, cut: bool) -> LogEvent | None:
        if match := _CONNECT.fullmatch(text):
            connects = _connects(match.group(1))
            if not connects:
                return Unreadable(line, subscription=False)
            return connects[0] if len(connects) == 1 else _ambiguous(line, connects, cut=cut)
        if match := _EXPIRED.fullmatch(text):
            return SessionExpired(match.group(1))
        if match := _DROPPING.fullmatch(text):
            return Dropping(match.group(1))
        if text.startswith(_BAD_SOCKET):
            return self._pick(line, _ends(_REASON, text[len(_BAD_SOCKET) :]), cut=cut)
        if text.startswith("Client "):
            rest = text[len("Client ") :]
            ends = [end for tail in self._ends for end in _ends(tail, rest)]
            return self._pick(line, ends, cut=cut)
        return None

    def _pick(self, line: str, readings: list[ClientEvent], *, cut: bool) -> LogEvent | None:
        """Choose among the readings, without those whose client is not connected.

        In a cut line the client id itself may be cut, so there even a single reading counts only
        when we know all connected clients.
        """
        if self._table.complete and (len(readings) > 1 or cut):
            connected = [reading for reading in readings if self._table.is_connected(reading.id)]
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
        return Unreadable(line, any(isinstance(reading, Subscribed) for reading in readings))
    return Ambiguous(line, tuple(readings), cut)


def _decode(payload: bytes, *, cut: bool) -> str:
    """Decode a line; drop a character that was cut at its end."""
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
        for at, sign in enumerate(text)
        if at and sign == " " and _is_filter(text[at + 1 :], cut=cut)
    ]


def _connects(rest: str) -> list[ClientEvent]:
    return [
        ClientConnected(
            id=rest[: at.start()],
            clean=at.group(2) == "1",
            protocol=_PROTOCOLS_IN_2_0.get(at.group(1)) or int(at.group(1)),
        )
        for at in _CONNECT_TAIL.finditer(rest, 1)
    ]


def _ends(tail: re.Pattern[str], rest: str) -> list[ClientEvent]:
    return [ClientEnded(rest[: at.start()]) for at in tail.finditer(rest, 1)]


def _is_filter(text: str, *, cut: bool) -> bool:
    """Whether ``text`` can be a filter or, when ``cut``, the beginning of one.

    Mosquitto grants, and counts, ``$share/g``, which matches nothing, and ``$share/+/x``.
    """
    if text.startswith(SHARE) and not cut:
        group, slash, path = text[len(SHARE) :].partition("/")
        if not group or (slash and group == "#") or (path and not _is_filter(path, cut=False)):
            return False
        text = group
    try:
        validate_filter(text + "x" if cut and not text.endswith(("#", "+")) else text)
    except ValueError:
        # A share name may be cut before the filter begins.
        return cut and text.startswith(SHARE)
    return True

"""The timestamp before each log line, learned from the line about ourselves.

``log_timestamp_format`` may be anything ``strftime`` knows, or be switched off, so no fixed pattern
will do. But one line is known word for word except for its timestamp: the one that reports our own
subscription to the log, the first line a new subscriber ever gets. What stands before our client id
there is the timestamp; its shape (digits, words, signs) strips it from every other line.

A client that imitates that line can only put **more** before our id, so the shortest shape wins.

Source: Mosquitto's ``logging.c`` (``log__vprintf``): timestamp, colon, space, text.
"""

import re

LOG_ROOT = "$SYS/broker/log/"

_EPOCH = re.compile(r"\d{9,11}: ")
_NOTHING = re.compile("")
_RUNS = re.compile(r"(\d+)|([^\W\d_]+)|( +)|(.)", re.DOTALL)
PREFIX_CHARS_MAX = 256


class TimestampShape:
    """Strips timestamps. Until it has learned, it takes leading seconds since 1970 for one.

    Args:
        own_id: Client id of the connection that subscribes to the log.
    """

    def __init__(self, own_id: str) -> None:
        self._own_line = re.compile(
            rf"(.*?)(?<!\S){re.escape(own_id)} [012] {re.escape(LOG_ROOT)}", re.DOTALL
        )
        self.forget()

    def forget(self) -> None:
        """Learn anew: the broker may have been configured again."""
        self._learned: re.Pattern[str] | None = None
        self._learned_from = ""

    def learn(self, line: str) -> None:
        """Look at a line from the topic of subscriptions; keep its shape when it is about us."""
        own = self._own_line.match(line)
        if own is None:
            return
        prefix = own.group(1)
        if len(prefix) > PREFIX_CHARS_MAX or (prefix and not prefix.endswith(": ")):
            return
        if self._learned is None or len(prefix) < len(self._learned_from):
            self._learned = _shape_of(prefix)
            self._learned_from = prefix

    def strip(self, line: str) -> str | None:
        """``line`` without its timestamp; ``None`` when it does not begin as the others do."""
        if self._learned is None:
            found = _EPOCH.match(line)
            return line[found.end() :] if found else line
        found = self._learned.match(line)
        return line[found.end() :] if found else None


def _shape_of(prefix: str) -> re.Pattern[str]:
    if not prefix:
        return _NOTHING
    if _EPOCH.fullmatch(prefix):
        return _EPOCH
    shape = []
    for digits, letters, blanks, other in _RUNS.findall(prefix.removesuffix(": ")):
        if digits:
            shape.append(r"\d+")
        elif letters:
            shape.append(r"[^\W\d_]+")
        elif blanks:
            shape.append(" +")
        else:
            shape.append("[+-]" if other in "+-" else re.escape(other))
    return re.compile("".join(shape) + ": ")  # one blank: an id may begin with more

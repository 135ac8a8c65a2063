"""Golden files of log lines: topic and payload, and below each what it means.

::

    M/subscribe | 1700000000: plain 1 a/b
      = Subscribed(id='plain', qos=1, filter='a/b', cut=False)

Readings of an ambiguous line stand one below the other, each after an equals sign.
Bytes that are no UTF-8 are written ``\\xNN``, a backslash as two.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from federator.protocol.discovery.log_lines import LOG_ROOT, Ambiguous, LogEvent, Unreadable

FOLDER = Path(__file__).parent / "golden"


class NobodyKnown:
    """No client is known: every reading of a line stands."""

    complete = False

    def is_connected(self, id: str) -> bool:
        return False


def meanings_of(event: LogEvent | None) -> tuple[str, ...]:
    """What a golden file says of ``event``."""
    match event:
        case None:
            return ("nothing",)
        case Unreadable():
            return (f"Unreadable(subscription={event.subscription})",)
        case Ambiguous():
            return tuple(map(repr, event.candidates))
        case _:
            return (repr(event),)


@dataclass(frozen=True)
class EventLine:
    """One line of the log and its meanings."""

    topic: str
    payload: bytes
    meanings: tuple[str, ...]

    def __str__(self) -> str:
        shown = self.payload.decode(errors="surrogateescape").replace("\\", "\\\\")
        shown = "".join(
            f"\\x{ord(c) - 0xDC00:02x}" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in shown
        )
        meanings = "".join(f"  = {meaning}\n" for meaning in self.meanings)
        return f"{self.topic.removeprefix(LOG_ROOT)} | {shown}\n{meanings}"


@dataclass(frozen=True)
class GoldenFile:
    """A captured log, and another version whose log was the same, if any."""

    name: str
    own_id: str
    version: str
    also: str | None
    lines: list[EventLine]


def _unescaped(shown: str) -> bytes:
    parts = shown.split("\\\\")
    raw = []
    for part in parts:
        pieces = part.split("\\x")
        raw.append(
            pieces[0].encode()
            + b"".join(bytes([int(p[:2], 16)]) + p[2:].encode() for p in pieces[1:])
        )
    return b"\\".join(raw)


def read_golden(path: Path) -> GoldenFile:
    """The golden file at ``path``, of the first version that it names."""
    header: dict[str, str] = {}
    lines: list[EventLine] = []
    for line in path.read_text().splitlines():
        if line.startswith("# ") and ": " in line and not lines:
            key, _, value = line[2:].partition(": ")
            header[key] = value
        elif line.startswith("  = "):
            last = lines.pop()
            lines.append(replace(last, meanings=(*last.meanings, line[4:])))
        elif line and not line.startswith("#"):
            short, _, shown = line.partition(" | ")
            lines.append(EventLine(LOG_ROOT + short, _unescaped(shown), ()))
    also = header.get("the same, but for times and ports, from")
    return GoldenFile(path.stem, header["own id"], header["version"], also, lines)


def golden_files() -> Iterator[GoldenFile]:
    """All of them, for each version."""
    for path in sorted(FOLDER.glob("*.txt")):
        golden = read_golden(path)
        yield golden
        if golden.also is not None:
            name = golden.also.rpartition(" ")[2]
            yield replace(golden, name=name, version=golden.also)

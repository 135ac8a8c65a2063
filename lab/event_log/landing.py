"""Segments in the landing layout, with what befalls files: copies, and damage.

A copy is the tail of a segment under its own name, as when a reader asked again for what it already
had. Damaged lines are *added*, beside the sound ones, in every way that quarantine tells apart: so
a report over the damaged log must say the same as one over the sound log, and what was damaged.
"""

import gzip
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

COPIED = 0.02
"""The share of segments whose end stands in a second file too."""

_AT_US = re.compile(r'"at_us":(\d+)')
_BATCH = re.compile(r'"batch":(\d+)')
_NUMBER = re.compile(r'"(row|batch|at_us|broker)":(\d+)')


@dataclass(slots=True)
class Written:
    """What stands on disk. ``copies`` are lines that stand there twice.

    Attributes:
        damaged: Lines by the reason that quarantine must give.
    """

    records: int = 0
    files: int = 0
    bytes: int = 0
    copies: int = 0
    damaged: Counter[str] = field(default_factory=Counter)
    tables: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Written") -> None:
        """Together with ``other``."""
        self.records += other.records
        self.files += other.files
        self.bytes += other.bytes
        self.copies += other.copies
        self.damaged += other.damaged
        self.tables += other.tables


def write(
    folder: Path,
    name: str,
    lines: list[str],
    *,
    corrupt: float,
    compress: bool,
    rng: random.Random,
) -> Written:
    """One segment, called ``name`` (broker and spool) and after its first and last batch."""
    written = Written(records=len(lines))
    if not lines:
        return written
    copied = rng.random() < COPIED  # before any damage is drawn: damage changes nothing else
    damage = random.Random(rng.random())
    _put(folder, name, lines, written, corrupt=corrupt, compress=compress, rng=damage)
    first, last = _number(_BATCH, lines[0]), _number(_BATCH, lines[-1])
    if first < last and copied:
        middle = (first + last + 1) // 2
        tail = [line for line in lines if _number(_BATCH, line) >= middle]
        if tail:
            written.copies += len(tail)
            _put(folder, name, tail, written, corrupt=0.0, compress=compress, rng=damage)
    return written


def _put(
    folder: Path,
    name: str,
    lines: list[str],
    written: Written,
    *,
    corrupt: float,
    compress: bool,
    rng: random.Random,
) -> None:
    first, last = _number(_BATCH, lines[0]), _number(_BATCH, lines[-1])
    moment = datetime.fromtimestamp(_number(_AT_US, lines[0]) / 1_000_000, UTC)
    place = folder / f"date={moment:%Y-%m-%d}" / f"hour={moment:%H}"
    place.mkdir(parents=True, exist_ok=True)
    if corrupt:
        lines = _damaged(lines, corrupt, written.damaged, rng)
    text = ("\n".join(lines) + "\n").encode()
    if compress:
        text = gzip.compress(text, compresslevel=1, mtime=0)
    path = place / f"{name}-{first}-{last}.jsonl{'.gz' if compress else ''}"
    path.write_bytes(text)
    written.files += 1
    written.bytes += len(text)


def _number(pattern: re.Pattern[str], line: str) -> int:
    found = pattern.search(line)
    assert found is not None, f"a line of ours without {pattern.pattern}: {line[:100]}"
    return int(found[1])


def _damaged(
    lines: list[str], share: float, damaged: Counter[str], rng: random.Random
) -> list[str]:
    """``lines``, and after some of them a damaged copy."""
    out: list[str] = []
    for line in lines:
        out.append(line)
        if rng.random() < share:
            reason, harm = rng.choice(_HARMS)
            out.append(harm(line, rng))
            damaged[reason] += 1
    return out


def _cut(line: str, rng: random.Random) -> str:
    return line[: rng.randrange(20, len(line) - 1)]


def _noise(line: str, rng: random.Random) -> str:
    return "".join(rng.choice("abcdefgh ,:}") for _ in range(40))


def _future(line: str, rng: random.Random) -> str:
    return line.replace('"v":1', '"v":99', 1)


def _foreign(line: str, rng: random.Random) -> str:
    return re.sub(r'"table":"\w+"', '"table":"weather"', line, count=1)


def _mistyped(line: str, rng: random.Random) -> str:
    return re.sub(r'"batch":\d+', '"batch":"seven"', line, count=1)


def _lacking(line: str, rng: random.Random) -> str:
    return re.sub(r'"at_us":\d+,', "", line, count=1)


_HARMS: tuple[tuple[str, Callable[[str, random.Random], str]], ...] = (
    ("truncated", _cut),
    ("not JSON", _noise),
    ("unknown version", _future),
    ("unknown table", _foreign),
    ("wrong type: batch", _mistyped),
    ("missing: at_us", _lacking),
)

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


@dataclass(slots=True)
class Written:
    """What stands on disk. ``copies`` are lines that stand there twice."""

    records: int = 0
    files: int = 0
    bytes: int = 0
    copies: int = 0
    damaged: Counter[str] = field(default_factory=Counter)  # by the reason quarantine must give
    tables: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Written") -> None:
        """Together with ``other``."""
        for name in ("records", "files", "bytes", "copies", "damaged", "tables"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def write(
    folder: Path, name: str, lines: list[str], *, corrupt: float, compress: bool, rng: random.Random
) -> Written:
    """One segment, called ``name`` (broker and spool) and after its first and last batch."""
    written = Written(records=len(lines))
    if not lines:
        return written
    copied = rng.random() < COPIED  # before any damage is drawn: damage changes nothing else
    damage = random.Random(rng.random())
    first, last = _number(_BATCH, lines[0]), _number(_BATCH, lines[-1])
    middle = (first + last + 1) // 2
    tail = [line for line in lines if _number(_BATCH, line) >= middle] if first < last else []
    harmed = _damaged(lines, corrupt, written.damaged, damage) if corrupt else lines
    _put(folder, name, lines, harmed, written, compress=compress)
    if copied and tail:
        written.copies += len(tail)
        _put(folder, name, tail, tail, written, compress=compress)
    return written


def _put(
    folder: Path, name: str, sound: list[str], lines: list[str], written: Written, *, compress: bool
) -> None:
    """Write ``lines`` into the file that is named after the ``sound`` ones among them."""
    first, last = _number(_BATCH, sound[0]), _number(_BATCH, sound[-1])
    moment = datetime.fromtimestamp(_number(_AT_US, sound[0]) / 1_000_000, UTC)
    place = folder / f"date={moment:%Y-%m-%d}" / f"hour={moment:%H}"
    place.mkdir(parents=True, exist_ok=True)
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


_HARMS: tuple[tuple[str, Callable[[str, random.Random], str]], ...] = (
    ("truncated", lambda line, rng: line[: rng.randrange(20, len(line) - 1)]),
    ("not JSON", lambda _, rng: "".join(rng.choice("abcdefgh ,:}") for _ in range(40))),
    ("unknown version", lambda line, _: line.replace('"v":1', '"v":99', 1)),
    ("unknown table", lambda line, _: re.sub(r'"table":"\w+"', '"table":"weather"', line, count=1)),
    ("wrong type: batch", lambda line, _: re.sub(r'"batch":\d+', '"batch":"seven"', line, count=1)),
    ("missing: at_us", lambda line, _: re.sub(r'"at_us":\d+,', "", line, count=1)),
)

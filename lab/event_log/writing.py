"""A whole log: how long it must be, and many processes that write it, as segments that landed.

With what befalls files: copies, and damage. A copy is the tail of a segment under its own name, as
when a reader asked again for what it already had. Damaged lines are *added*, beside the sound ones,
in every way that quarantine tells apart: so a report over the damaged log must say the same as one
over the sound log, and what was damaged.

Source: docs/analytics.md, "A large log".
"""

import gzip
import random
import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from federator_analytics.errors import UsageError

from lab.event_log import layout, story
from lab.event_log.columns import lines_of
from lab.event_log.layout import BROKERS_MAX, BROKERS_MIN, Layout
from lab.event_log.story import Story
from lab.event_log.tables import tables_of
from lab.event_log.timeline import Chunk, chunks_of
from lab.frame.settings import setting

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
        for name in ("records", "files", "bytes", "copies", "damaged", "tables"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def _write_segment(
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


ACTIVITIES = (1.0, 0.3, 0.1, 0.03, 0.01)
"""The shares that clients publish: less where the story alone has more records than wanted."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is wanted."""

    brokers: int = setting(25, "", BROKERS_MIN, BROKERS_MAX)
    records: int = setting(1_000_000, "About so many.", 1)
    seed: int = setting(1, "Decides everything.", 0)
    corrupt: float = setting(0.0, "Share of damaged lines to add.", 0, 1)
    compress: bool = setting(default=False, about="Write .jsonl.gz.", option="--gzip")


@dataclass(frozen=True, slots=True)
class _Play:
    order: Order
    folder: Path
    layout: Layout
    story: Story
    chunks: list[Chunk]

    @property
    def log_s(self) -> int:
        return sum(len(chunk.seconds) for chunk in self.chunks)


_play: _Play | None = None


def write(order: Order, folder: Path, *, processes: int) -> Written:
    """Write the log into ``folder``, the same for any number of ``processes``.

    Raises ``UsageError``: the shortest story has more records than wanted.
    """
    laid, told, quiet_s = _fit(order)
    chunks = chunks_of(laid, told, quiet_s=quiet_s, seed=order.seed)
    written = Written()
    play = _Play(order, folder, laid, told, chunks)
    with ProcessPoolExecutor(processes, initializer=_begin, initargs=(play,)) as pool:
        for one in pool.map(_write_chunk, range(len(chunks))):
            written.add(one)
    return written


def _fit(order: Order) -> tuple[Layout, Story, int]:
    """The layout that is as busy as the number of records allows, and seconds of quiet to add."""
    least = 0
    told = story.tell(layout.draw(order.brokers, seed=order.seed), seed=order.seed)
    for activity in ACTIVITIES:
        laid = layout.draw(order.brokers, seed=order.seed, activity=activity)
        chunks = chunks_of(laid, told, quiet_s=0, seed=order.seed)
        least = sum(_rows(laid, told, chunk, order.seed) for chunk in chunks)
        if least <= order.records:
            per_s = least / sum(len(chunk.seconds) for chunk in chunks)
            return laid, told, round((order.records - least) / per_s)
    raise UsageError(
        f"--records {order.records}: the story of {order.brokers} brokers has {least} at least"
    )


def _rows(laid: Layout, told: Story, chunk: Chunk, seed: int) -> int:
    tables = tables_of(laid, told, chunk, log_s=told.seconds, seed=seed)
    return sum(map(len, tables.values()))


def _begin(play: _Play) -> None:
    global _play
    _play = play


def _write_chunk(number: int) -> Written:
    assert _play is not None, "a process of the pool is given the play first"
    order, laid, chunk = _play.order, _play.layout, _play.chunks[number]
    tables = tables_of(laid, _play.story, chunk, log_s=_play.log_s, seed=order.seed)
    rng = random.Random(f"landing {order.seed} {chunk.number}")
    written = Written()
    for at, lines in enumerate(lines_of(laid, chunk, tables)):
        name, harm, gzip = f"{laid.ids[at]}-{chunk.spools[at]}", order.corrupt, order.compress
        written.add(_write_segment(_play.folder, name, lines, corrupt=harm, compress=gzip, rng=rng))
    for name, rows in tables.items():
        written.tables[name] += len(rows)
    return written

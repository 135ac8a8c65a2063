"""A whole log: how long it must be, and many processes that write it.

Source: docs/analytics.md, "A large log".
"""

import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from analytics.errors import UsageError
from lab.event_log import landing, layout, story
from lab.event_log.columns import lines_of
from lab.event_log.landing import Written
from lab.event_log.layout import Layout
from lab.event_log.story import Story
from lab.event_log.tables import tables_of
from lab.event_log.timeline import Chunk, chunks_of

ACTIVITIES = (1.0, 0.3, 0.1, 0.03, 0.01)
"""The shares that clients publish: less where the story alone has more records than wanted."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is wanted."""

    brokers: int
    records: int  # about so many; what was written is told
    seed: int
    folder: Path
    corrupt: float = 0.0  # share of lines after which a damaged one is added
    compress: bool = False


@dataclass(frozen=True, slots=True)
class _Play:
    order: Order
    layout: Layout
    story: Story
    chunks: list[Chunk]

    @property
    def log_s(self) -> int:
        """The length of the log."""
        return sum(len(chunk.seconds) for chunk in self.chunks)


_play: _Play | None = None


def write(order: Order, *, processes: int) -> Written:
    """Write the log into ``order.folder``, the same for any number of ``processes``.

    Raises:
        UsageError: The shortest story has more records than wanted.
    """
    laid, told, quiet_s = _fit(order)
    chunks = chunks_of(laid, told, quiet_s=quiet_s, seed=order.seed)
    written = Written()
    play = _Play(order, laid, told, chunks)
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
        written.add(landing.write(order.folder, name, lines, corrupt=harm, compress=gzip, rng=rng))
    for name, rows in tables.items():
        written.tables[name] += len(rows)
    return written

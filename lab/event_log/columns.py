"""A table's rows of one chunk as columns, columns as text, and delays of whole columns as
histograms.

Whoever fills a table gives, beside its own columns, for each row the broker that reports it and the
second of the chunk. The place of a row within its batch follows from all tables together. The
histogram is the same as an agent's (docs/metrics.md, "The histogram").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from federator.protocol.telemetry.records import TABLES as RECORDS
from federator.protocol.telemetry.sketch import BUCKETS_MAX, GAMMA
from lab.event_log.layout import Layout
from lab.event_log.timeline import FIRST_EPOCH, START_US, Chunk

Ints = NDArray[np.int64]

WINDOW_MS = 1_000

TEXTS = frozenset({"filter", "flow", "strategy", "kind", "direction", "detail"})
"""Columns whose values are words; ``None`` stands for null in any column."""

INSTANTS = frozenset({"events", "hops", "wants"})


@dataclass(slots=True)
class Rows:
    """Rows of one table."""

    broker: Ints  # who reports, by position
    second: Ints  # of the chunk
    own: dict[str, Any]  # columns by name: arrays, or lists of numbers, words or None
    at_us: Ints | None = None  # of instants; ``None``: the start of the window

    def __len__(self) -> int:
        return len(self.broker)


def window_us(layout: Layout, chunk: Chunk, broker: Ints, second: Ints) -> Ints:
    """The start of each window, by its reporter's clock."""
    phase = np.array(layout.phase_us, dtype=np.int64)
    skew = np.array(layout.skew_us, dtype=np.int64)
    return START_US + (chunk.first_s + second) * 1_000_000 + phase[broker] + skew[broker]


def lines_of(layout: Layout, chunk: Chunk, tables: dict[str, Rows]) -> list[list[str]]:
    """The lines of each broker, without line ends, by batch and row."""
    seconds = len(chunk.seconds)
    cells = len(layout.ids) * seconds
    rows_before = np.zeros(cells, dtype=np.int64)
    placed: list[tuple[str, Rows, Ints, Ints]] = []
    for name in RECORDS:  # the order in which a batch holds them
        rows = tables.get(name)
        if rows is None or not len(rows):
            continue
        cell = rows.broker * seconds + rows.second
        order = np.argsort(cell, kind="stable")
        counts = np.bincount(cell, minlength=cells)
        rank = np.empty(len(rows), dtype=np.int64)
        rank[order] = np.arange(len(rows)) - (np.cumsum(counts) - counts)[cell[order]]
        placed.append((name, rows, cell, rows_before[cell] + rank))
        rows_before += counts
    starts = np.cumsum(rows_before) - rows_before
    out = np.empty(int(rows_before.sum()), dtype=object)
    for name, rows, cell, row in placed:
        out[starts[cell] + row] = _lines(layout, chunk, name, rows, row)
    bounds = [*starts[::seconds].tolist(), len(out)]
    return [out[a:b].tolist() for a, b in pairwise(bounds)]


def _lines(layout: Layout, chunk: Chunk, name: str, rows: Rows, row: Ints) -> list[str]:
    heads = [
        f'{{"table":"{name}","v":1,"federation":"{layout.federation}","broker":{id},'
        f'"epoch":{FIRST_EPOCH + life},"spool":"{spool}",'
        for id, life, spool in zip(layout.ids, chunk.phase.act.lives, chunk.spools, strict=True)
    ]
    batch = np.array(chunk.batches, dtype=np.int64)[rows.broker] + rows.second
    at_us = rows.at_us
    if at_us is None:
        at_us = window_us(layout, chunk, rows.broker, rows.second)
    window_ms = 0 if name in INSTANTS else WINDOW_MS
    template = f'%s"batch":%d,"row":%d,"at_us":%d,"window_ms":{window_ms}'
    columns: list[Sequence[Any]] = [
        [heads[at] for at in rows.broker.tolist()],
        batch.tolist(),
        row.tolist(),
        at_us.tolist(),
    ]
    wanted = RECORDS[name].__struct_fields__
    for key in (field for field in wanted if field in rows.own):
        values = rows.own[key]
        place, column = _column(key, values.tolist() if isinstance(values, np.ndarray) else values)
        template += f',"{key}":{place}'
        columns.append(column)
    return list(map((template + "}").__mod__, zip(*columns, strict=True)))


def _column(key: str, values: list[Any]) -> tuple[str, list[Any]]:
    """The place holder of a column in the line, and the values that fit it."""
    if key in ("delay", "delays_us"):
        return "[%s]", values
    place = '"%s"' if key in TEXTS else "%d"
    if None in values:
        return "%s", ["null" if value is None else place % value for value in values]
    return place, values


def sketch_rows(row: Ints, delay_us: Ints, rows: int) -> dict[str, Any]:
    """The histograms of ``rows`` rows, each of which has at least one delay, as a table's columns.

    Args:
        row: To which row each delay belongs.
        delay_us: The delays, in the order of ``row``'s entries.
    """
    if not rows:
        return {}
    order = np.argsort(row, kind="stable")
    row, delay_us = row[order], delay_us[order]
    starts = np.searchsorted(row, np.arange(rows))
    min_us = np.minimum.reduceat(delay_us, starts)
    above = delay_us - min_us[row]
    bucket = np.zeros(len(above), dtype=np.int64)
    far = above > 1
    bucket[far] = np.ceil(np.log(above[far]) / np.log(GAMMA)).astype(np.int64)
    key, count = np.unique(row * BUCKETS_MAX + bucket, return_counts=True)
    texts = [
        _entry(*pair) for pair in zip((key % BUCKETS_MAX).tolist(), count.tolist(), strict=True)
    ]
    ends = np.searchsorted(key, np.arange(1, rows + 1) * BUCKETS_MAX).tolist()
    return {
        "base_us": min_us,
        "sum_us": np.add.reduceat(delay_us, starts),
        "min_us": min_us,
        "max_us": np.maximum.reduceat(delay_us, starts),
        "delay": [",".join(texts[a:b]) for a, b in pairwise([0, *ends])],
    }


@lru_cache(maxsize=65_536)
def _entry(bucket: int, count: int) -> str:
    return f"[{bucket},{count}]"

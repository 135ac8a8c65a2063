"""A table's rows of one chunk as columns, and columns as text.

Whoever fills a table gives, beside its own columns, for each row the broker that reports it and the
second of the chunk. The place of a row within its batch follows from all tables together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytics.simulate.layout import Layout
from analytics.simulate.timeline import FIRST_EPOCH, START_US, Chunk
from federator.protocol.metric_records import TABLES as RECORDS

Ints = NDArray[np.int64]

WINDOW_MS = 1_000

TABLES = (
    "deliveries", "offered", "arrived", "links", "control", "announcements", "agents", "events",
    "hops", "clients",
)  # fmt: skip
"""In the order in which a batch holds them."""

TEXTS = frozenset({"filter", "strategy", "kind", "direction", "detail"})
"""Columns whose values are words; ``None`` stands for null in any column."""

INSTANTS = frozenset({"events", "hops"})


@dataclass(slots=True)
class Rows:
    """Rows of one table.

    Attributes:
        broker: Who reports, by position.
        second: Of the chunk.
        own: The table's own columns by name; each an array or a list of numbers, words or None.
        at_us: Of instants; ``None``: the start of the window.
    """

    broker: Ints
    second: Ints
    own: dict[str, Any]
    at_us: Ints | None = None

    def __len__(self) -> int:
        return len(self.broker)


def window_us(layout: Layout, chunk: Chunk, broker: Ints, second: Ints) -> Ints:
    """When a window starts, by its reporter's clock."""
    phase = np.array(layout.phase_us, dtype=np.int64)
    skew = np.array(layout.skew_us, dtype=np.int64)
    return START_US + (chunk.first_s + second) * 1_000_000 + phase[broker] + skew[broker]


def lines_of(layout: Layout, chunk: Chunk, tables: dict[str, Rows]) -> list[list[str]]:
    """For each broker its lines, without line ends, by batch and row."""
    seconds = len(chunk.seconds)
    cells = len(layout.ids) * seconds
    rows_before = np.zeros(cells, dtype=np.int64)
    placed: list[tuple[str, Rows, Ints, Ints]] = []
    for name in TABLES:
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
        for id, life, spool in zip(layout.ids, chunk.phase.lives, chunk.spools, strict=True)
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
    """How a column stands in the line: the place holder, and the values that fit it."""
    if key in ("delay", "delays_us"):
        return "[%s]", values
    if key in TEXTS:
        if None in values:
            return "%s", ["null" if value is None else f'"{value}"' for value in values]
        return '"%s"', values
    if None in values:
        return "%s", ["null" if value is None else str(value) for value in values]
    return "%d", values

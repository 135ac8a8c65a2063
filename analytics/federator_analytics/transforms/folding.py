"""Folding: blocks of raw lines to partial aggregates, where the lines are read.

    for rows in fold(blocks, held={}): ...

A worker of Spark parses its blocks (``sources.lines``), turns some ten thousand records at a time
into columns, and groups those with Arrow's own kernels: what leaves it is a few thousand rows of
PACKED, whatever it has read, and a row per bucket of the delay histograms. Spark only reads files,
hands them out, and keeps the rows. Nothing of this has a plan, or code that is generated.

``held`` names batches that may have been read twice (``sources.duplicates``): their records are not
folded but passed on, in part ``HELD``, to be told apart first.
"""

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, groupby
from operator import attrgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from federator.protocol.telemetry.sketch import value_of
from federator_analytics.schemas.records import BUCKET_MAX, COUNT_MAX, FIELDS, HEAD
from federator_analytics.schemas.reports import WINDOW_S
from federator_analytics.sources.duplicates import marked
from federator_analytics.sources.lines import RECORDS, Bad, Record, encode, parse
from federator_analytics.transforms.partials import (
    BESIDE,
    CLIENTS,
    COUNTED,
    DELAYS,
    HIGH_BITS,
    OF_TABLE,
    PARTIALS,
    SEEN,
    WIDE,
    Partial,
    arrow_type,
    as_packed,
)

AT_ONCE = 16_000
"""Records that are made columns together; some 1 kB each, which processors' caches still hold."""
HELD = "held"
HELD_RECORDS = Partial(("broker", "batch", "row", "spool", "federation", "raw"))
"""Records that were not folded: who they are, and the line."""
_WINDOW_US = WINDOW_S * 1_000_000
_MADE = {
    "deliveries": {"destination": "broker"},
    "arrived": {"destination": "broker"},
    "offered": {"origin": "broker"},
    "hops": {"receiver": "broker"},
    "clients": {"origin": "publisher_broker"},
}
"""Columns that are another key of the record by the name of its role."""
_ALWAYS = ("federation", "broker", "epoch", "spool", "batch", "row", "at_us", "window_ms")
_MORE = {
    "deliveries": ("base_us", "sum_us"),
    "clients": ("publisher_broker", "destination"),
    "flows": ("planned",),
}


def bucket_value_us(bucket: int) -> int:
    """What a bucket of a delay histogram stands for, above the row's base, in whole microseconds:
    so sums of weights do not depend on the order of addition, and batch, stream and cluster agree
    to the last bit.
    """
    return round(value_of(bucket))


_VALUES = np.array([bucket_value_us(bucket) for bucket in range(BUCKET_MAX + 1)], np.int64)
"""The value of each bucket."""

Whole = npt.NDArray[np.int64]
Columns = dict[str, pa.Array]
Held = Mapping[str, Collection[int]]
"""Spool to numbers of batches."""
Wide = Callable[[Columns, list[Record]], pa.Table]


def _wanted(table: str) -> tuple[str, ...]:
    """The keys of its records that are made columns."""
    has = [field.name for field in (*HEAD, *FIELDS[table])]
    used = {name for how in OF_TABLE[table].values() for name in how.columns}
    used |= {*_ALWAYS, *_MORE.get(table, ())}
    return tuple(name for name in has if name in used)


_WANTED = {table: _wanted(table) for table in FIELDS}


def fold(batches: Iterable[pa.RecordBatch], held: Held) -> Iterator[pa.Table]:
    """PACKED of BLOCKS: partials, marks, quarantine, and HELD; a key may have many rows."""
    folding = Folding()
    with uncollected():
        for block in blocks_of(batches):
            yield from folding.read(*block, held)
        yield from folding.rest()


_BLOCK = ("content", "file", "line")
Block = tuple[bytes, str | None, int | None]


def blocks_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Block]:
    """The rows of BLOCKS."""
    for batch in batches:
        for block in zip(*(batch.column(name) for name in _BLOCK), strict=True):
            content, file, line = (value.as_py() for value in block)
            yield content, file, line


@contextmanager
def uncollected() -> Iterator[None]:
    """Without Python's search for cycles: records are many and hold none."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Folding:
    """Partials of all records that were added. Rows that are not worth merging come at once.

    Each table that comes is of one part, and has rows.

    Args:
        wide: PACKED rows of the partial ``WIDE``, of deliveries as columns and as records.

    Attributes:
        records: How many were added.
    """

    def __init__(self, wide: Wide | None = None) -> None:
        self._wide = wide or _packed_delays
        self.records = 0
        self._waiting: list[list[Record]] = []
        self._count = 0
        self._parts: dict[str, list[pa.Table]] = {}

    def read(
        self, content: bytes, file: str | None, line: int | None, held: Held
    ) -> Iterator[pa.Table]:
        """Fold a row of BLOCKS; PACKED rows that are ready, those of ``held`` among them."""
        records, bad = parse(content, file, line)
        if bad:
            yield _quarantined(bad)
        if held:
            records, passed = _parted(records, held)
            if passed:
                yield _passed(passed)
        yield from self.add(records)

    def add(self, records: list[Record]) -> Iterator[pa.Table]:
        """Fold these; PACKED rows that are ready."""
        self._waiting.append(records)
        self._count += len(records)
        self.records += len(records)
        if self._count >= AT_ONCE:
            yield from self._fold()

    def rest(self) -> Iterator[pa.Table]:
        """The rows that are left when all records were added."""
        yield from self._fold()
        for name, tables in self._parts.items():
            yield as_packed(name, PARTIALS[name], merged(PARTIALS[name], pa.concat_tables(tables)))
        self._parts.clear()

    def _fold(self) -> Iterator[pa.Table]:
        tables: dict[type, list[Record]] = {}
        for kind, run in groupby(chain.from_iterable(self._waiting), type):
            tables.setdefault(kind, []).extend(run)
        self._waiting, self._count = [], 0
        heads = []
        for table, kind in RECORDS.items():
            if records := tables.get(kind):
                columns = _columns(table, records)
                heads.append(_table(columns, (*SEEN.columns, "spool", "batch", "row")))
                for name, how in OF_TABLE[table].items():
                    self._keep(name, how, _table(columns, how.columns))
                if table == "deliveries" and (wide := self._wide(columns, records)):
                    yield wide
                if table == "clients":
                    self._keep("clients", CLIENTS, _measured(columns, records))
        if heads:
            every = pa.concat_tables(heads)
            self._keep("agents_seen", SEEN, every.select(list(SEEN.columns)))
            yield as_packed("marks", COUNTED, marked(every))

    def _keep(self, name: str, how: Partial, rows: pa.Table) -> None:
        if rows:
            self._parts.setdefault(name, []).append(merged(how, rows))


def merged(how: Partial, rows: pa.Table) -> pa.Table:
    """One row per key, as ``Partial.merged``."""
    assert not how.bits, "no columns in memory are joined by OR"
    ways = {"sum": how.sums, "min": how.least, "max": how.greatest}
    told = [(name, way) for way, names in ways.items() for name in names]
    groups = rows.group_by(list(how.keys), use_threads=False).aggregate(told)
    names = [*how.keys, *(f"{name}_{way}" for name, way in told)]
    return groups.select(names).rename_columns(list(how.columns))


def _columns(table: str, records: list[Record]) -> Columns:
    """An array for each of the records' wanted keys, and for what is made of them."""
    made = _of_each(records, _WANTED[table])
    for name, of in _MADE.get(table, {}).items():
        made[name] = made[of]
    at_us = whole(made["at_us"])
    ones = pa.array(np.ones(len(records), np.int64))
    made |= {"one": ones, "windows": ones, "records": ones}
    made["first_us"] = made["at_us"]
    made["last_us"] = pa.array(at_us + whole(made["window_ms"]) * 1_000)
    made["window_us"] = pa.array(at_us - at_us % _WINDOW_US)
    if table == "links":
        made["room_bytes"], made["bytes_out_of_room"] = _room(made)
    if table == "flows":
        made["bytes"] = pa.array(_carried(made, "rate"))
        made["planned_ms"] = pa.array(whole(made["planned"]) * whole(made["window_ms"]))
    if table == "deliveries":
        sum_us = whole(made["sum_us"])
        made["sum_us_high"] = pa.array(sum_us >> HIGH_BITS)
        made["sum_us_low"] = pa.array(sum_us & (2**HIGH_BITS - 1))
    return made


def _room(links: Columns) -> tuple[pa.Array, pa.Array]:
    """What each link could have carried in its window, and what it did; 0 where nobody knows."""
    known = whole(links["capacity"].fill_null(0)) > 0
    sent = np.where(known, whole(links["bytes_out"]), 0)
    return pa.array(_carried(links, "capacity")), pa.array(sent)


def _carried(columns: Columns, rate: str) -> Whole:
    """The bytes that go in each row's window at this rate, in bit/s; 0 where nobody knows it."""
    per_s = whole(columns[rate].fill_null(0)).astype(np.float64)
    found = np.floor(per_s * whole(columns["window_ms"]) / 8_000.0)
    return np.minimum(found, COUNT_MAX).astype(np.int64)


def _table(columns: Columns, names: Iterable[str]) -> pa.Table:
    return pa.table({name: columns[name] for name in names})


def _packed_delays(columns: Columns, records: list[Record]) -> pa.Table:
    row, value_us, publications = buckets(columns, records)
    of_row = pa.array(row)
    told = {name: columns[name].take(of_row) for name in DELAYS.keys[:-1]}
    told |= {"value_us": pa.array(value_us), "publications": pa.array(publications)}
    return as_packed(WIDE, DELAYS, pa.table(told))


def buckets(columns: Columns, records: list[Record]) -> tuple[Whole, Whole, Whole]:
    """The row, the value and the count of each bucket of these deliveries."""
    sketches = [record.delay for record in records]
    row, pairs = _spread([list(chain.from_iterable(sketch)) for sketch in sketches], width=2)
    return row, whole(columns["base_us"])[row] + _VALUES[pairs[:, 0]], pairs[:, 1].copy()


def _measured(columns: Columns, records: list[Record]) -> pa.Table:
    """CLIENTS of ``clients``."""
    row, delays = _spread([record.delays_us for record in records], width=1)
    of_row = pa.array(row)
    told = {name: columns[name].take(of_row) for name in ("origin", "destination")}
    told["value_us"] = pa.array(delays[:, 0].copy())
    told["publications"] = pa.array(np.ones(len(row), np.int64))
    return pa.table(told)


def _spread(lists: list[list[int]], *, width: int) -> tuple[Whole, Whole]:
    """The lists' items, ``width`` in a row, and for each row which list it is of."""
    counts = np.fromiter(map(len, lists), np.int64, len(lists)) // width
    items = np.fromiter(chain.from_iterable(lists), np.int64)
    return np.repeat(np.arange(len(lists)), counts), items.reshape(-1, width)


def _parted(records: list[Record], held: Held) -> tuple[list[Record], list[Record]]:
    """Records to fold, and those of held batches."""
    parted: tuple[list[Record], list[Record]] = [], []
    for record in records:
        parted[record.batch in held.get(record.spool, ())].append(record)
    return parted


def _passed(records: list[Record]) -> pa.Table:
    columns = _of_each(records, HELD_RECORDS.keys[:-1])
    columns["raw"] = pa.array([encode(record).decode() for record in records], pa.string())
    return as_packed(HELD, HELD_RECORDS, pa.table(columns))


def _quarantined(bad: list[Bad]) -> pa.Table:
    how = BESIDE["quarantine"]
    told = _of_each(bad, how.keys) | {"one": pa.array([1] * len(bad), pa.int64())}
    return as_packed("quarantine", how, pa.table(told))


def _of_each(records: Sequence[Record], names: tuple[str, ...]) -> Columns:
    """Arrays of these keys (two at least) of all records; each record is touched once."""
    values = zip(*map(attrgetter(*names), records), strict=True)
    return {name: pa.array(of, arrow_type(name)) for name, of in zip(names, values, strict=True)}


def whole(array: pa.Array | pa.ChunkedArray) -> Whole:
    """Whole numbers without NULL."""
    return np.asarray(array.to_numpy(), dtype=np.int64)

"""Folding in chunks: what leaves a worker can be taken back, and delays stay arrays.

A chunk is some blocks, as many as hold ``RECORDS_MIN`` records. Its rows bear its name, so if
some of its records turn out to be in another chunk too, all of its rows are left out, and its files
are read again: nobody need look for copies before folding. Of the partial ``delays``, of which
every bucket of every histogram is a row, there is one row for each flow of a chunk, with all
buckets in three arrays: Spark carries them and never looks inside.
"""

from collections.abc import Iterable, Iterator
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.types import StructType

from federator_analytics.schemas.fields import struct
from federator_analytics.sources.lines import Record
from federator_analytics.transforms.counted import numbered
from federator_analytics.transforms.delays import FLOW
from federator_analytics.transforms.folding import (
    Columns,
    Folding,
    Held,
    Whole,
    blocks_of,
    buckets,
    uncollected,
    whole,
)
from federator_analytics.transforms.partials import PACKED, WIDE, Partial, as_packed

RECORDS_MIN = 50_000
"""Records of a chunk, unless it is the last of its worker's."""
ARRAYS = ("window_us", "value_us", "publications")
"""The columns of DELAYS that are not the flow's, each as bytes of an array of whole numbers."""
_MORE = struct("chunk string", *(f"{name} binary?" for name in ARRAYS))
CHUNKS = StructType([*_MORE.fields, *PACKED.fields])
FILES, FILE = "files", Partial(("file",))
"""The part that tells which files a chunk is of."""
FLOWS = Partial(FLOW)
"""The partial ``delays`` in CHUNKS, beside ARRAYS."""
_INT = np.dtype("<i8")


def fold_in_chunks(batches: Iterable[pa.RecordBatch], held: Held) -> Iterator[pa.RecordBatch]:
    """CHUNKS of BLOCKS, as ``folding.fold``. Names are those of chunks of this task of the job."""
    task = TaskContext.get()
    names = (f"{task.partitionId() if task else 0}-{number}" for number in count())
    with uncollected():
        chunk: _Chunk | None = None
        for content, file, line in blocks_of(batches):
            chunk = chunk or _Chunk(next(names))
            if file is not None:
                yield from chunk.labelled(as_packed(FILES, FILE, pa.table({"file": [file]})))
            for rows in chunk.folding.read(content, file, line, held):
                yield from chunk.labelled(rows)
            if chunk.folding.records >= RECORDS_MIN:
                yield from chunk.end()
                chunk = None
        if chunk is not None:
            yield from chunk.end()


class _Chunk:
    def __init__(self, name: str) -> None:
        self._name = name
        self.folding = Folding(_flows)

    def end(self) -> Iterator[pa.RecordBatch]:
        for rows in self.folding.rest():
            yield from self.labelled(rows)

    def labelled(self, rows: pa.Table) -> list[pa.RecordBatch]:
        told = {"chunk": pa.repeat(self._name, len(rows))}
        for name in ARRAYS:
            has = name in rows.column_names
            told[name] = rows[name] if has else pa.nulls(len(rows), pa.binary())
        told |= {name: rows[name] for name in PACKED.fieldNames()}
        batches: list[pa.RecordBatch] = pa.table(told).combine_chunks().to_batches()
        return batches


def _flows(columns: Columns, records: list[Record]) -> pa.Table:
    """PACKED of FLOWS, and ARRAYS, of deliveries."""
    row, value_us, publications = buckets(columns, records)
    ids, flows = numbered(pa.table({name: columns[name] for name in FLOW}), FLOW)
    order = np.argsort(ids[row], kind="stable")
    of_flow = ids[row][order]
    cuts = np.flatnonzero(of_flow[1:] != of_flow[:-1]) + 1
    arrays = (whole(columns["window_us"])[row], value_us, publications)
    told = as_packed(WIDE, FLOWS, flows.take(pa.array(np.unique(of_flow))))
    for name, array in zip(ARRAYS, arrays, strict=True):
        pieces = np.split(array[order].astype(_INT), cuts) if len(order) else []
        told = told.append_column(
            name, pa.array([piece.tobytes() for piece in pieces], pa.binary())
        )
    return told


def delays_of(flows: pa.Table) -> pa.Table:
    """DELAYS of rows of FLOW's columns and ARRAYS. Others of their columns are kept, too."""
    arrays = {name: _joined(flows[name]) for name in ARRAYS}
    counts = whole(pc.binary_length(flows[ARRAYS[0]])) // _INT.itemsize
    of_row = pa.array(np.repeat(np.arange(len(flows)), counts))
    told = {name: flows[name].take(of_row) for name in flows.column_names if name not in ARRAYS}
    return pa.table(told | {name: pa.array(array) for name, array in arrays.items()})


def _joined(column: pa.ChunkedArray) -> Whole:
    return np.frombuffer(b"".join(column.to_pylist()), _INT).astype(np.int64)

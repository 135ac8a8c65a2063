"""Which records of a micro-batch were read before, decided in the driver.

What ``jobs.staging`` does in Spark with all that a report reads is done here beside the stream's
state. Agents number their batches, and land them in order: of a spool, a batch above the highest
that was read before is new, and no mark need be looked at. The records of all other batches are
held (``transforms.folding``), and told apart one by one by the marks that the state keeps of them.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analytics.jobs.state import PartFiles, files_of, home_of
from analytics.sources.duplicates import MARK_KEYS, WORD_BITS, by_spool, merged_marks
from analytics.sources.lines import parse
from analytics.transforms.folding import HELD, HELD_RECORDS, Folding, Held
from analytics.transforms.partials import BESIDE, as_packed, slots_of

AT_ONCE = 50_000
"""Held records that are in memory together."""


class Highest:
    """The highest batch of each spool that was folded. ``marks``: of all that was folded so far."""

    def __init__(self, marks: pa.Table) -> None:
        self._of: dict[str, int] = {}
        self.note(marks)

    def note(self, marks: pa.Table) -> None:
        """Remember the batches of these marks as folded."""
        told = marks.group_by("spool", use_threads=False).aggregate([("batch", "max")]).to_pylist()
        for row in told:
            spool, batch = row["spool"], row["batch_max"]
            self._of[spool] = max(batch, self._of.get(spool, 0))

    def doubtful(self, counted: pa.Table) -> Held:
        """The batches of COUNTED_MARKS with a record twice, or perhaps one that was read before."""
        marks = merged_marks(counted)
        twice = np.bitwise_count(marks["bits"].to_numpy()) < marks["records"].to_numpy()
        spools, batches = marks["spool"].to_pylist(), marks["batch"].to_pylist()
        return by_spool(
            (spool, batch)
            for spool, batch, is_twice in zip(spools, batches, twice, strict=True)
            if is_twice or batch <= self._of.get(spool, 0)
        )


def tell_apart(folder: Path, known: pa.Table) -> None:
    """Fold each of the held records once, and none that is known.

    Args:
        folder: A part of the state that is being made, in which they are.
        known: The partial ``marks`` of their batches, not merged.
    """
    held = files_of(HELD, folder)
    if not held:
        return
    folding, copies = Folding(), Counter[str]()
    made: list[pa.Table] = []
    for lines in _first_ones(_rows(held), _bits(known), copies):
        records, bad = parse(lines)
        assert not bad, "they were parsed before"
        made += folding.add(records)
    made += folding.rest()
    if copies:
        told = {"federation": list(copies), "records_twice": list(copies.values())}
        made.append(as_packed("duplicates", BESIDE["duplicates"], pa.table(told)))
    files = PartFiles(folder, "told-apart")
    for rows in made:
        files.write(rows)
    files.close()
    shutil.rmtree(home_of(HELD, folder))


def _rows(held: list[Path]) -> Iterator[pa.RecordBatch]:
    slots = [slots_of(HELD_RECORDS)[name] for name in HELD_RECORDS.keys]
    for path in held:
        for rows in pq.ParquetFile(path).iter_batches(AT_ONCE, columns=slots):
            yield rows.select(slots).rename_columns(list(HELD_RECORDS.keys))


def _bits(known: pa.Table) -> dict[tuple[object, ...], int]:
    """The bits of each word that has a mark."""
    bits: dict[tuple[object, ...], int] = {}
    for *key, one in zip(*(known[name].to_pylist() for name in (*MARK_KEYS, "bits")), strict=True):
        bits[tuple(key)] = bits.get(tuple(key), 0) | one
    return bits


def _first_ones(
    held: Iterator[pa.RecordBatch], bits: dict[tuple[object, ...], int], copies: Counter[str]
) -> Iterator[bytes]:
    """Blocks of the lines of those that have no bit yet; ``copies``: of a federation's others."""
    for rows in held:
        lines: list[str] = []
        for broker, batch, row, spool, federation, raw in zip(
            *(column.to_pylist() for column in rows.columns), strict=True
        ):
            key, bit = (broker, spool, batch, row // WORD_BITS), 1 << row % WORD_BITS
            if bits.get(key, 0) & bit:
                copies[federation] += 1
            else:
                bits[key] = bits.get(key, 0) | bit
                lines.append(raw)
        yield "\n".join(lines).encode()

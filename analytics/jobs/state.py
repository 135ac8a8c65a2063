"""What the stream has folded so far: partial aggregates on disk, by spans of micro-batches.

A part is written under a hidden name and renamed into place whole, so a kill leaves it there or
not there. Parts of like length are merged eight at a time, as in a log-structured merge tree:
there are never more than seven of a level, and a record is merged once per level. A merged part
covers what it was made of, which may then go. One machine's file system (or a shared one) is
wanted: object storage renames nothing.
"""

import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from analytics.jobs.sizing import as_one_file
from analytics.jobs.staging import side_by_side

FANOUT = 8
Merge = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Micro-batches ``first`` to ``last``."""

    first: int
    last: int

    @property
    def level(self) -> int:
        """How often parts of this length were merged."""
        level, length = 0, self.last - self.first + 1
        while length >= FANOUT:
            level, length = level + 1, length // FANOUT
        return level

    @property
    def name(self) -> str:
        """The folder's."""
        return f"{self.first}-{self.last}"


class State:
    """The parts below ``home``. Adding and merging may be done from two threads."""

    def __init__(self, spark: SparkSession, home: Path, schemas: Mapping[str, StructType]) -> None:
        self._spark = spark
        self._home = home
        self._schemas = schemas
        self.lock = threading.RLock()
        home.mkdir(parents=True, exist_ok=True)
        self._remove_covered()

    def spans(self) -> list[Span]:
        """The parts that count, in order, with no micro-batch twice."""
        found = sorted(self._found(), key=lambda span: (span.first, -span.last))
        kept: list[Span] = []
        for span in found:
            if not kept or span.first > kept[-1].last:
                kept.append(span)
        return kept

    def newest(self) -> int:
        """The last micro-batch that was folded; -1 before the first."""
        spans = self.spans()
        return spans[-1].last if spans else -1

    def read(self, name: str, spans: Sequence[Span]) -> DataFrame:
        """All rows of one table, of these parts."""
        paths = [str(self._home / span.name / name) for span in spans]
        schema = self._schemas[name]
        if not paths:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(*paths)

    def add(self, batch: int, tables: Mapping[str, DataFrame]) -> None:
        """Keep what one micro-batch gave."""
        self._write(Span(batch, batch), tables)

    def merge_if_due(self, how: Mapping[str, Merge]) -> None:
        """Make one part of the last eight, while those are of one level."""
        while len(due := self.spans()[-FANOUT:]) == FANOUT and len({s.level for s in due}) == 1:
            merged = {name: merge(self.read(name, due)) for name, merge in how.items()}
            self._write(Span(due[0].first, due[-1].last), merged)
            self._remove_covered()

    def _write(self, span: Span, tables: Mapping[str, DataFrame]) -> None:
        beside = self._home / f".{span.name}"
        shutil.rmtree(beside, ignore_errors=True)
        side_by_side(
            self._spark,
            (partial(_save, table, str(beside / name)) for name, table in tables.items()),
        )
        with self.lock:
            os.replace(beside, self._home / span.name)

    def _remove_covered(self) -> None:
        with self.lock:
            for span in set(self._found()) - set(self.spans()):
                shutil.rmtree(self._home / span.name)

    def _found(self) -> list[Span]:
        names = [path.name for path in self._home.iterdir() if not path.name.startswith(".")]
        return [Span(*map(int, name.split("-"))) for name in names]


def _save(table: DataFrame, path: str) -> None:
    as_one_file(table).write.mode("overwrite").parquet(path)

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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.jobs.sizing import as_one_file
from analytics.transforms.packed import PACKED, merged
from analytics.transforms.partials import WIDE

FANOUT = 8
_SPAN = "span="
WIDE_FILES = 2
"""Of the one partial that is as large as its records; of all others there is one file each."""


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
        """The folder's: to Spark a partition."""
        return f"{_SPAN}{self.first}-{self.last}"


class State:
    """The parts below ``home``. Adding and merging may be done from two threads."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self._spark = spark
        self._home = home
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

    def read(self, spans: Sequence[Span]) -> DataFrame:
        """PACKED: all rows of these parts, not merged."""
        paths = [str(self._home / span.name) for span in spans]
        if not paths:
            return self._spark.createDataFrame([], PACKED)
        reader = self._spark.read.schema(PACKED).option("basePath", str(self._home))
        return reader.parquet(*paths).select(*PACKED.fieldNames())

    def add(self, batch: int, packed: DataFrame) -> None:
        """Keep what one micro-batch gave: PACKED rows, not merged."""
        self._write(Span(batch, batch), packed)

    def merge_if_due(self) -> None:
        """Make one part of the last eight, while those are of one level."""
        while len(due := self.spans()[-FANOUT:]) == FANOUT and len({s.level for s in due}) == 1:
            self._write(Span(due[0].first, due[-1].last), self.read(due))
            self._remove_covered()

    def _write(self, span: Span, packed: DataFrame) -> None:
        beside = self._home / f".{span.name}"
        shutil.rmtree(beside, ignore_errors=True)
        wide = F.col("part") == WIDE
        rows = as_one_file(merged(packed.where(~wide))).union(
            packed.where(wide).coalesce(WIDE_FILES)
        )
        rows.write.partitionBy("part").parquet(str(beside))
        with self.lock:
            os.replace(beside, self._home / span.name)

    def _remove_covered(self) -> None:
        with self.lock:
            for span in set(self._found()) - set(self.spans()):
                shutil.rmtree(self._home / span.name)

    def _found(self) -> list[Span]:
        names = [path.name for path in self._home.iterdir() if not path.name.startswith(".")]
        return [Span(*map(int, name.removeprefix(_SPAN).split("-"))) for name in names]

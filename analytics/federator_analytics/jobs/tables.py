"""Report tables on disk: Parquet folders, of which a reader sees the old or the new, whole.

Each run writes ``_versions/<n>/<table>`` and then points ``<table>`` there, a symbolic link that
is renamed into place. The version before is kept for other readers, and one that our own reader
holds until it is read. One program writes below a folder at a time. On object storage, where
nothing can be renamed or locked, a table is overwritten in place.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from federator_analytics.digest.tables import (
    LAST_OF,
    Choice,
    Tables,
    is_locked,
    remove_version,
    tables_of,
)
from federator_analytics.errors import CannotWriteError, InUseError
from federator_analytics.jobs.staging import as_one_file, side_by_side
from federator_analytics.schemas.reports import REPORT_TABLES
from federator_analytics.transforms.report import Planned

VERSIONS = "_versions"
VERSIONS_KEPT = 2
LOCK = ".tables.lock"
GROWN_ROWS_MAX = 100_000
"""Rows of a file that rows are added to: it is written again each time."""
_FILE, _MOVING = "part-{:06d}.parquet", "part-moving.parquet"
"""Names whose order is that of the files."""


def _by_spark(table: DataFrame, path: str) -> None:
    as_one_file(table).write.mode("overwrite").parquet(path)


def as_written(name: str) -> pa.Schema:
    """The columns and types of a report table's files, each of which may be NULL."""
    schema = to_arrow_schema(REPORT_TABLES[name], timezone="UTC")
    return pa.schema([field.with_nullable(True) for field in schema])


def save(rows: pa.Table, path: str) -> None:
    """Save a small table on the driver's disk: without a protocol for many writers."""
    Path(path).mkdir(parents=True)
    pq.write_table(rows, Path(path, _FILE.format(0)))


Save = Callable[[DataFrame, str], None]


def append(rows: pa.Table, files: Sequence[Path], path: str) -> None:
    """Save a table that has what these files have, and these rows; finished files are linked."""
    Path(path).mkdir(parents=True)
    finished = list(files)
    if finished and len(rows) and _has_room(finished[-1], len(rows)):
        rows = pa.concat_tables([pq.read_table(finished.pop(), schema=rows.schema), rows])
    for file in finished:
        os.link(file, Path(path, file.name))
    if len(rows) or not finished:
        pq.write_table(rows, Path(path, _FILE.format(len(finished))))


def _has_room(file: Path, rows: int) -> bool:
    return int(pq.read_metadata(file).num_rows) + rows <= GROWN_ROWS_MAX


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of which a table is told anew, by when they began, in microseconds.

    ``fresh``: of these; the others are as in the former table. ``moving``: they may soon be told
    again. ``late``: fresh ones that moved no more.
    """

    fresh: Collection[int]
    moving: Collection[int]
    late: Collection[int]


def append_windows(rows: pa.Table, told: Windows, files: Sequence[Path], path: str) -> None:
    """Save a table by windows that has these rows, and of other windows what these files have.

    Windows that may soon be told again are in the last file; the others are finished.
    """
    kept, finished = (files, []) if told.late else (files[-1:], files[:-1])
    if kept:
        before = pa.concat_tables(pq.read_table(file, schema=rows.schema) for file in kept)
        rows = pa.concat_tables([before.filter(pc.invert(_is_of(before, told.fresh))), rows])
    moving = _is_of(rows, told.moving)
    append(rows.filter(pc.invert(moving)), finished, path)
    pq.write_table(rows.filter(moving), Path(path, _MOVING))


def _is_of(rows: pa.Table, windows: Collection[int]) -> pa.ChunkedArray:
    wanted = pa.array(list(windows), pa.int64())
    return pc.is_in(rows["window_start"].cast(pa.int64()), wanted)


def _on_disk(out: str) -> Path | None:
    """The folder ``out``; None on object storage."""
    plain = out.removeprefix("file://")
    return None if "://" in plain else Path(plain).absolute()


@contextmanager
def alone_in(out: str) -> Iterator[None]:
    """While inside, nobody else who uses this writes below ``out``; of no effect on object storage.

    Raises:
        InUseError: Somebody does.
        CannotWriteError: It is no folder that we may write.
    """
    root = _on_disk(out)
    if root is None:
        yield
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        wanted = "a folder that this user may write is wanted"
        raise CannotWriteError(f"--out {out}: {error.strerror}: {wanted}") from error
    try:
        if not is_locked(lock, fcntl.LOCK_EX):
            wanted = "end it first, or name another folder"
            raise InUseError(f"--out {out}: another report or stream writes there: {wanted}")
        yield
    finally:
        os.close(lock)


def write(
    spark: SparkSession,
    tables: Planned,
    out: str,
    by: Save = _by_spark,
    kept: Collection[str] = (),
) -> None:
    """Replace the folders below ``out`` by these tables; those of ``kept`` are linked as they were.

    Who looks may rely on ``span`` being the last that is replaced.
    """

    def save_below(home: str) -> None:
        def save_one(name: str) -> None:
            by(tables[name](), f"{home}/{name}")

        side_by_side(spark, (partial(save_one, name) for name in tables))

    root = _on_disk(out)
    if root is None:
        save_below(out)
        return
    versions = root / VERSIONS
    versions.mkdir(parents=True, exist_ok=True)
    known = sorted(int(path.name) for path in versions.iterdir() if path.name.isdigit())
    version = known[-1] + 1 if known else 1
    home = versions / str(version)
    for name in kept:
        _link(versions / str(known[-1]) / name, home / name)
    save_below(str(home))
    for name in REPORT_TABLES:
        _point(root / name, Path(VERSIONS, str(version), name))
    for old in known[: len(known) + 1 - VERSIONS_KEPT]:
        remove_version(versions / str(old))


def _link(former: Path, folder: Path) -> None:
    """The same files in another folder."""
    folder.mkdir(parents=True)
    for file in former.iterdir():
        os.link(file, folder / file.name)


def _point(link: Path, target: Path) -> None:
    """Make ``link`` point at ``target`` from one instant to the next."""
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(link)
    beside = link.with_name(f".{link.name}")
    beside.unlink(missing_ok=True)
    beside.symlink_to(target)
    os.replace(beside, link)


def collect_tables(spark: SparkSession, home: str) -> Tables:
    """What ``read_tables`` reads, below a URL."""

    def read(choice: Choice) -> None:
        table = spark.read.parquet(f"{home}/{choice.name}")
        if choice.key is not None:
            table = table.orderBy(F.desc(choice.key))
        choice.take((table if choice.name in LAST_OF else table.limit(choice.most + 1)).toArrow())

    return tables_of(read)

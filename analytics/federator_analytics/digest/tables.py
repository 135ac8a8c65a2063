"""Report tables as rows in memory: Parquet folders read without Spark, so a page needs no Java.

Most tables are small (brokers squared, not records), but nothing says how many filters, windows or
events a federation has. So each is read up to a bound. Of a longer one that has times the newest
rows are read, of another those with the most publications, bytes or losses; and who reads learns
which tables were cut, and from when on they are whole.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds

from federator_analytics.digest.broker import names_of, with_names
from federator_analytics.errors import InputError

Row = Mapping[str, Any]
Whole = npt.NDArray[np.int64]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

ROWS_MAX = 200_000
"""Rows read of one table. 200,000 take about 2 s and 300 MB."""
ROWS_AT_ONCE = 5_000
"""Rows made at a time: meanwhile no other thread runs."""
QUARANTINE_ROWS_MAX = 200
"""Bad lines shown at most; how many there are is in ``quarantine_counts``."""
TRIES = 10
"""How often a version is looked for: each time a writer must have removed it within an instant."""

NAMES = (
    "span", "delay", "delay_over_time", "hop_times", "overhead", "control_by_kind", "loss",
    "events", "convergence", "brokers", "links", "flows", "traffic_matrix", "clocks", "clients",
    "quarantine", "quarantine_counts",
)  # fmt: skip
"""The tables of ``federator_analytics.schemas.reports.REPORT_TABLES``."""

GREATEST: Mapping[str, str] = {
    "delay": "publications",  # so the rows over several pairs are among them
    "delay_over_time": "window_start",
    "hop_times": "samples",
    "control_by_kind": "bytes",
    "loss": "missing",
    "events": "window_start",
    "convergence": "started",
    "flows": "bytes",
    "traffic_matrix": "publications",
    "clients": "publications",
}
"""Tables of which the rows with the greatest value in this column are read; of others the first."""
LAST_OF: Mapping[str, tuple[str, ...]] = {"events": ("broker", "kind", "neighbour")}
"""Tables of which the last row of each such key is read as well, however old it is: as long as
nothing else is told, it says what is."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Rows by table name.

    ``cut`` names the tables that have more rows than were read, with the time from which on they
    are whole; None for a table without times.
    """

    rows: Mapping[str, Sequence[Row]]
    cut: Mapping[str, datetime | None] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Sequence[Row]:
        return self.rows.get(name, ())


class Choice:
    """The rows of one table that are read, of more that come part by part, the newest part first.

    A window that does not fit is left out whole: a part of its pairs would look like all of them.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.most = QUARANTINE_ROWS_MAX if name == "quarantine" else ROWS_MAX
        self.key = GREATEST.get(name)
        self.above: int | None = None
        """Rows whose key is not above this are left out; None while all fit."""
        self._rows: pa.Table | None = None
        self._is_cut = False

    def take(self, part: pa.Table) -> None:
        """Choose among what is there and these rows, which stand before it in the table."""
        if not len(part):
            return
        part = _in_utc(part)
        known = [part] if self._rows is None else [part, self._rows]
        self._rows = pa.concat_tables(known, promote_options="default")
        if self.key is None:
            self._is_cut = len(self._rows) > self.most
            self._rows = self._rows.slice(0, self.most)
        else:
            self._rows = self._rows.filter(pa.array(self._chosen(self._rows, self.key)))

    def rows(self) -> list[dict[str, Any]]:
        """The rows that were chosen, in the order of the table."""
        parts = [] if self._rows is None else self._rows.to_batches(ROWS_AT_ONCE)
        return [row for part in parts for row in part.to_pylist()]

    def cut(self) -> Mapping[str, datetime | None]:
        """This table, if rows were left out, as in ``Tables``."""
        if not self._is_cut or self._rows is None:
            return {}
        if self.key is None or self.above is None or not _has_times(self._rows, self.key):
            return {self.name: None}
        values = _whole(self._rows[self.key])
        oldest_us = int(values[values > self.above].min())
        return {self.name: _EPOCH + timedelta(microseconds=oldest_us)}

    def _chosen(self, rows: pa.Table, key: str) -> npt.NDArray[np.bool_]:
        values = _whole(rows[key])
        kept = np.ones(len(values), np.bool_) if self.above is None else values > self.above
        if (count := int(kept.sum())) > self.most:
            least = count - self.most - 1
            self.above = int(np.partition(values[kept], least)[least])
            kept = values > self.above
            if not _has_times(rows, key) or not kept.any():
                alike = np.flatnonzero(values == self.above)
                kept[alike[len(alike) - (self.most - int(kept.sum())) :]] = True
                self.above -= 1
        if self.above is not None:
            self._is_cut = True
            if self.name in LAST_OF:
                kept[self._last(rows, values)] = True
        return kept

    def _last(self, rows: pa.Table, values: Whole) -> Whole:
        """The places of the last row of each key; of the newest of these, if they are many."""
        order = np.argsort(values, kind="stable")
        keys = list(LAST_OF[self.name])
        told = rows.select(keys).take(pa.array(order))
        told = told.append_column("place", pa.array(np.arange(len(order))))
        last = told.group_by(keys).aggregate([("place", "max")])["place_max"].to_numpy()
        places: Whole = order[np.sort(last)[-self.most :]]
        return places


def part_files(folder: Path) -> list[Path]:
    """The Parquet files of one table, without the hidden ones of a write that is under way."""
    return sorted(
        path for path in folder.rglob("*.parquet")
        if not any(part[0] in "._" for part in path.relative_to(folder).parts)
    )  # fmt: skip


def version_of(folder: Path) -> Path:
    """The folder that holds the tables of one moment.

    A writer that replaces tables points ``<table>`` at a folder of the new version, one table after
    the other and ``span`` last; so where ``span`` points, every table is of the same version.
    """
    last = folder / NAMES[0]
    return last.resolve().parent if last.is_symlink() else folder


@contextmanager
def held_version(folder: Path) -> Iterator[Path]:
    """``version_of`` the folder; no writer removes it while inside.

    Raises ``InputError``: it was gone each time, as soon as it was found.
    """
    for _ in range(TRIES):
        home = version_of(folder)
        if home == folder:  # tables that nobody switches
            yield home
            return
        try:
            held = os.open(home, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            if is_locked(held, fcntl.LOCK_SH) and home.exists():
                yield home
                return
        finally:
            os.close(held)
    raise InputError(f"{folder}: the tables are being replaced")


def is_locked(fd: int, how: int) -> bool:
    """Lock a file or folder until ``fd`` is closed; False if somebody else has it locked.

    A file system without locks keeps nobody apart: there we are told that it is locked.
    """
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def remove_version(home: Path) -> None:
    """Remove a version, unless somebody holds it or it is not ours to remove."""
    try:
        folder = os.open(home, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if is_locked(folder, fcntl.LOCK_EX):
            shutil.rmtree(home, ignore_errors=True)
    finally:
        os.close(folder)


def read_tables(folder: Path) -> Tables:
    """All tables below ``folder``, of one version; a table that is not there has no rows.

    Raises ``InputError``: a file is not Parquet, or the tables are being replaced: read again.
    """
    with held_version(folder) as home:
        return tables_of(lambda choice: _read(home / choice.name, choice))


def tables_of(read: Callable[[Choice], None]) -> Tables:
    """All tables, by what gives a choice the rows of its table."""
    rows: dict[str, Sequence[Row]] = {}
    cut: dict[str, datetime | None] = {}
    for name in NAMES:
        choice = Choice(name)
        read(choice)
        rows[name] = choice.rows()
        cut |= choice.cut() if name != "quarantine" else {}
    names = names_of(rows["brokers"])
    return Tables({n: with_names(each, names) for n, each in rows.items()}, cut)


def _read(folder: Path, choice: Choice) -> None:
    try:
        files = [str(path) for path in part_files(folder)]
        if choice.key is None and files:
            choice.take(ds.dataset(files, format="parquet").head(choice.most + 1))
        elif choice.key is not None:
            for path in reversed(files):  # of a table that grows the last file has the newest
                choice.take(_above(ds.dataset(path, format="parquet"), choice))
    except (pa.ArrowException, OSError) as error:
        text = " ".join(str(error).split())[:200]
        raise InputError(f"{folder}: not a readable Parquet table: {text}") from error


def _above(file: ds.Dataset, choice: Choice) -> pa.Table:
    """The rows of a file that can be chosen: what its statistics exclude is not read."""
    if choice.above is None or choice.name in LAST_OF:
        return file.to_table()
    kind = file.schema.field(choice.key).type
    least = pa.scalar(choice.above, pa.int64())
    if pa.types.is_timestamp(kind):
        least = least.cast(pa.timestamp("us", "UTC")).cast(kind, safe=False)
    return file.to_table(filter=ds.field(choice.key) > least)


def _has_times(rows: pa.Table, key: str) -> bool:
    return bool(pa.types.is_timestamp(rows.schema.field(key).type))


def _whole(column: pa.ChunkedArray) -> Whole:
    values: Whole = column.cast(pa.int64()).to_numpy()
    return values


def _in_utc(table: pa.Table) -> pa.Table:
    """Instants as microseconds of UTC, whichever of Parquet's ways the writer chose for them."""
    for number, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            values = table.column(number).cast(pa.timestamp("us", "UTC"), safe=False)
            table = table.set_column(number, column.name, values)
    return table

"""Report tables as rows in memory: Parquet folders read without Spark, so a page needs no Java.

The tables are small (brokers squared, not records), but nothing says how many filters or windows a
federation has, so each is read up to a bound, and who reads learns which tables were cut.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from federator_analytics.digest.broker import names_of, with_names
from federator_analytics.errors import InputError

Row = Mapping[str, Any]

ROWS_MAX = 200_000
"""Rows read of one table. 200,000 take about 2 s and 300 MB."""
QUARANTINE_ROWS_MAX = 200
"""Bad lines shown at most; how many there are is in ``quarantine_counts``."""

NAMES = (
    "span", "delay", "delay_over_time", "hop_times", "overhead", "control_by_kind", "loss",
    "events", "convergence", "brokers", "links", "flows", "traffic_matrix", "clocks", "clients",
    "quarantine", "quarantine_counts",
)  # fmt: skip
"""The tables of ``federator_analytics.schemas.reports.REPORT_TABLES``."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Rows by table name. ``cut`` names the tables that have more rows than were read."""

    rows: Mapping[str, Sequence[Row]]
    cut: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> Sequence[Row]:
        return self.rows.get(name, ())


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


def read_tables(folder: Path) -> Tables:
    """All tables below ``folder``; a table that is not there has no rows.

    Raises ``InputError``: a file is not Parquet, or was replaced while it was read: read again.
    """
    home = version_of(folder)
    return tables_of(lambda name, most: _read(home / name, most))


def tables_of(read: Callable[[str, int], Sequence[Row]]) -> Tables:
    """All tables, by what reads one of this name: so many of its rows, at most."""
    rows: dict[str, Sequence[Row]] = {}
    cut = set()
    for name in NAMES:
        limit = QUARANTINE_ROWS_MAX if name == "quarantine" else ROWS_MAX
        found = read(name, limit + 1)
        if len(found) > limit and name != "quarantine":
            cut.add(name)
        rows[name] = found[:limit]
    names = names_of(rows["brokers"])
    return Tables({n: with_names(each, names) for n, each in rows.items()}, frozenset(cut))


def _read(folder: Path, limit: int) -> list[dict[str, Any]]:
    files = [str(path) for path in part_files(folder)]
    if not files:
        return []
    try:
        table = ds.dataset(files, format="parquet").head(limit)
    except (pa.ArrowException, OSError) as error:
        text = " ".join(str(error).split())[:200]
        raise InputError(f"{folder}: not a readable Parquet table: {text}") from error
    rows: list[dict[str, Any]] = _in_utc(table).to_pylist()
    return rows


def _in_utc(table: pa.Table) -> pa.Table:
    """Instants as microseconds of UTC, whichever of Parquet's ways the writer chose for them."""
    for number, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            values = table.column(number).cast(pa.timestamp("us", "UTC"), safe=False)
            table = table.set_column(number, column.name, values)
    return table

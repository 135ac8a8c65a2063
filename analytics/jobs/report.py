"""The batch report: landing folders to every report table.

    with spark_session("report") as spark:
        run(spark, ["landing"], "out")

One parse, staged as Parquet; one pass over that per partial aggregate; the tables come of the
partials.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from analytics.jobs.staging import Staged, discard, duplicates, stage
from analytics.jobs.tables import write
from analytics.sources.landing import read_lines
from analytics.sources.quarantine import counts
from analytics.transforms.partials import record_partials
from analytics.transforms.report import report_tables

__all__ = ["build", "run", "write"]

STAGING = "_staging"
_WIDE = ("delay_windows",)
"""Partials about as large as what they are made of: made again for each reader, not kept."""


def build(
    spark: SparkSession, inputs: Sequence[str], *, staging: str | None = None
) -> dict[str, DataFrame]:
    """The tables of REPORT_TABLES.

    Args:
        spark: The session.
        inputs: Landing folders, folders of spools, or segment files.
        staging: Folder for the parsed input, replaced; where all of Spark's machines see it. The
            tables read from it, so it must outlive them. None: a folder of this machine's, for the
            local master only; the caller's system removes it.

    Raises:
        InputMissingError: An input is not there.
    """
    lines = read_lines(spark, inputs)
    staged = stage(lines, staging or tempfile.mkdtemp(prefix="federator-staging-"))
    return report_tables(_parts(staged))


def run(spark: SparkSession, inputs: Sequence[str], out: str) -> None:
    """Build the tables and replace those below ``out``.

    Raises:
        InputMissingError: An input is not there.
    """
    home = out if "://" in out else str(Path(out).absolute())
    staging = f"{home}/{STAGING}"
    try:
        write(build(spark, inputs, staging=staging), home)
    finally:
        spark.catalog.clearCache()
        discard(staging)


def _parts(staged: Staged) -> dict[str, DataFrame]:
    parts = {name: how.of(staged.records) for name, how in record_partials().items()}
    kept = {name: part if name in _WIDE else part.persist() for name, part in parts.items()}
    quarantined = staged.quarantined.persist()
    return kept | {
        "quarantine": quarantined,
        "quarantine_counts": counts(quarantined),
        "duplicates": duplicates(staged),
    }

"""The batch report: landing folders to every report table.

    with spark_session("report") as spark:
        run(spark, ["landing"], "out")

One parse, staged as Parquet; one pass over that per partial aggregate; the tables come of the
partials.
"""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from analytics.jobs.sizing import gathered, planned_for
from analytics.jobs.staging import Staged, discard, duplicates, settle, stage
from analytics.jobs.tables import write
from analytics.sources.landing import read_lines
from analytics.sources.quarantine import counts
from analytics.transforms.partials import WIDE, record_partials
from analytics.transforms.report import report_tables

STAGING = "_staging"


def run(spark: SparkSession, inputs: Sequence[str], out: str) -> None:
    """Compute the tables of REPORT_TABLES and replace those below ``out``.

    Args:
        spark: The session.
        inputs: Landing folders, folders of spools, or segment files.
        out: A folder or URL that all of Spark's machines see: the parsed input is staged there.

    Raises:
        InputMissingError: An input is not there.
    """
    home = out if "://" in out else str(Path(out).absolute())
    staging = f"{home}/{STAGING}"
    try:
        parsed = stage(read_lines(spark, inputs), staging)
        with planned_for(parsed, compiled=False):
            write(report_tables(_parts(settle(parsed, staging))), home)
    finally:
        spark.catalog.clearCache()
        discard(staging)


def _parts(staged: Staged) -> dict[str, DataFrame]:
    how = record_partials()
    parts = {name: one.of(staged.records).persist() for name, one in how.items() if name != WIDE}
    parts["quarantine"] = staged.quarantined.persist()
    parts[WIDE] = how[WIDE].pick(staged.records)
    kept = {name: gathered(part) for name, part in parts.items()}
    return kept | {
        "quarantine_counts": counts(kept["quarantine"]),
        "duplicates": gathered(duplicates(staged, kept["agents_seen"])),
    }

"""The batch report: landing folders to every report table.

    with spark_session("report") as spark:
        run(spark, ["landing"], "out")

Each line is parsed and folded once, where it is read; the tables come of the partial aggregates.
"""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.jobs.delay_quantiles import sorted_delays
from analytics.jobs.sizing import gathered, planned_for
from analytics.jobs.staging import discard, folder_of, settle
from analytics.jobs.tables import write
from analytics.transforms import hop_times
from analytics.transforms.chunks import FILES
from analytics.transforms.load import median_round_trips
from analytics.transforms.pairs import facts_of
from analytics.transforms.partials import BESIDE, PARTIALS, WIDE, merged, unpack
from analytics.transforms.report import (
    Quantiles,
    quarantine_counts,
    quarantine_lines,
    report_tables,
)

STAGING = "_staging"


def run(spark: SparkSession, inputs: Sequence[str], out: str) -> None:
    """Compute the tables of REPORT_TABLES and replace those below ``out``.

    Args:
        inputs: Landing folders, folders of spools, or segment files.
        out: A folder or URL that all of Spark's machines see: the partials are staged there.

    Raises:
        InputMissingError: An input is not there.
    """
    home = out if "://" in out else str(Path(out).absolute())
    staging = f"{home}/{STAGING}"
    try:
        chunks = settle(spark, inputs, staging)
        with planned_for(chunks, but=folder_of(WIDE), compiled=False):
            parts = _parts(chunks)
            facts = facts_of(parts["pair_windows"], parts["links"])
            pairs = facts.pairs(chunks)
            scopes, windows = sorted_delays(chunks, pairs, f"{staging}/delays")
            steps = hop_times.steps(parts["hops"], pairs)
            found = Quantiles(
                lambda: scopes, lambda: windows, lambda: hop_times.step_quantiles(steps)
            )
            write(spark, report_tables(parts, facts, found), home)
    finally:
        spark.catalog.clearCache()
        discard(staging)


def _parts(chunks: DataFrame) -> dict[str, DataFrame]:
    small = gathered(merged(chunks.where(~F.col("part").isin(WIDE, "marks", FILES)))).persist()
    parts = {
        name: gathered(unpack(small, name, how))
        for name, how in (PARTIALS | BESIDE).items()
        if name not in (WIDE, "marks")
    }
    parts["quarantine"] = quarantine_lines(parts["quarantine"])
    return parts | {
        "quarantine_counts": quarantine_counts(parts["quarantine"]),
        "happened": parts["events"],
        "unsettled": parts["events"],
        "median_round_trips": median_round_trips(parts["round_trips"]),
    }

"""The batch report: landing folders to every report table.

    with spark_session("report") as spark:
        run(spark, ["landing"], "out")

Each line is parsed and folded once, where it is read; the tables come of the partial aggregates.
"""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.jobs.sizing import gathered, planned_for
from analytics.jobs.staging import discard, load, save, settle
from analytics.jobs.tables import write
from analytics.sources.landing import read_lines
from analytics.sources.quarantine import counts, each
from analytics.transforms.packed import merged, unpack
from analytics.transforms.partials import BESIDE, PARTIALS, WIDE
from analytics.transforms.report import of_partials

STAGING = "_staging"


def run(spark: SparkSession, inputs: Sequence[str], out: str) -> None:
    """Compute the tables of REPORT_TABLES and replace those below ``out``.

    Args:
        spark: The session.
        inputs: Landing folders, folders of spools, or segment files.
        out: A folder or URL that all of Spark's machines see: the partials are staged there.

    Raises:
        InputMissingError: An input is not there.
    """
    home = out if "://" in out else str(Path(out).absolute())
    staging = f"{home}/{STAGING}"
    try:
        save(settle(read_lines(spark, inputs), staging), f"{staging}/folded")
        folded = load(spark, f"{staging}/folded")
        with planned_for(folded, compiled=False):
            write(spark, of_partials(_parts(folded)), home)
    finally:
        spark.catalog.clearCache()
        discard(staging)


def _parts(folded: DataFrame) -> dict[str, DataFrame]:
    small = gathered(merged(folded.where(~F.col("part").isin(WIDE, "marks")))).persist()
    parts = {
        name: gathered(unpack(small, name, how))
        for name, how in (PARTIALS | BESIDE).items()
        if name not in (WIDE, "marks")
    }
    parts[WIDE] = gathered(unpack(folded, WIDE, PARTIALS[WIDE]))
    parts["quarantine"] = each(parts["quarantine"])
    return parts | {"quarantine_counts": counts(parts["quarantine"])}

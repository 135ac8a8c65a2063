"""Lines that are no records: kept with the reason and the place, and counted."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analytics.schemas.reports import REPORT_TABLES
from analytics.sources.reasons import reason

RAW_MAX = 1_000
"""Characters kept of a bad line."""


def quarantine(bad: DataFrame, starts: DataFrame) -> DataFrame:
    """QUARANTINE of the lines that ``lines.parse`` found bad.

    Args:
        bad: Those lines, as ``lines.parse`` gives them.
        starts: ``block_starts`` of all lines.
    """
    why = F.udf(reason, "string", useArrow=False)
    line = F.when(F.col("block") == 0, F.col("ordinal") - F.col("start") + 1)
    return (
        bad.select("file", "block", "ordinal", "raw")
        .join(F.broadcast(starts), ["file", "block"], "left")
        .withColumns({"line": line, "reason": why("raw"), "raw": F.substring("raw", 1, RAW_MAX)})
        .select(*REPORT_TABLES["quarantine"].fieldNames())
    )


def block_starts(parsed: DataFrame) -> DataFrame:
    """(file, block, start): the ordinal of the first line that was read there.

    Empty lines at a file's beginning are not seen, and would shift its line numbers.
    """
    return parsed.groupBy("file", "block").agg(F.min("ordinal").alias("start"))


def counts(quarantined: DataFrame) -> DataFrame:
    """QUARANTINE to QUARANTINE_COUNTS."""
    return quarantined.groupBy("reason").agg(F.count(F.lit(1)).alias("records"))

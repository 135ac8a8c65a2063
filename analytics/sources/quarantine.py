"""Lines that are no records: kept with the reason and the place, and counted."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def each(quarantined: DataFrame) -> DataFrame:
    """The partial ``quarantine`` with a row per line: ``one`` says how many are alike."""
    alike = F.sequence(F.lit(1).cast("long"), "one")
    return quarantined.select("*", F.explode(alike).alias("_")).drop("_")


def counts(quarantined: DataFrame) -> DataFrame:
    """QUARANTINE to QUARANTINE_COUNTS."""
    return quarantined.groupBy("reason").agg(F.count(F.lit(1)).alias("records"))

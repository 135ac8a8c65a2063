"""Report tables that only Spark can reach, as rows in memory: for a page from object storage."""

from datetime import UTC, datetime

from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession

from analytics.digest.tables import NAMES, Tables, rows_max


def collect_tables(spark: SparkSession, home: str) -> Tables:
    """What ``read_tables`` reads, below a URL."""
    rows = {}
    cut = set()
    for name in NAMES:
        limit = rows_max(name)
        found = spark.read.parquet(f"{home}/{name}").limit(limit + 1).collect()
        if len(found) > limit:
            cut.add(name)
        rows[name] = [_in_utc(row) for row in found[:limit]]
    return Tables(rows, frozenset(cut - {"quarantine"}))


def _in_utc(row: SparkRow) -> dict[str, object]:
    """Spark hands instants over in the zone of this process, without saying so."""
    return {
        key: value.astimezone(UTC) if isinstance(value, datetime) else value
        for key, value in row.asDict().items()
    }

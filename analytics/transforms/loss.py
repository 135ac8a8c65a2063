"""What was offered and what arrived, per filter and pair of brokers: the traffic matrix, and loss.

A row says ``complete`` where the destination took part over the whole span: only there is what is
missing a loss. Otherwise ``note`` says what happened first: the destination joined the filter's
mesh after the first publication was offered, left it before the last, or an agent of the two
started or lost part of its spool in between, so that some of the counts are missing.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analytics.schemas.reports import REPORT_TABLES

_KEYS = ("filter", "origin", "qos")
_NOTES = {
    "mesh_joined": "joined later",
    "mesh_left": "left earlier",
    "agent_started": "an agent started",
    "spool_dropped": "records lost",
}


def loss(
    offered: DataFrame, arrived: DataFrame, deliveries: DataFrame, events: DataFrame
) -> DataFrame:
    """LOSS from the partials of these names."""
    sent = offered.groupBy(*_KEYS).agg(
        F.sum("publications").alias("offered"),
        F.min("first_us").alias("first_us"),
        F.max("last_us").alias("last_us"),
    )
    came = arrived.groupBy(*_KEYS, "destination").agg(
        F.sum("publications").alias("arrived"), F.min("first_us").alias("came_us")
    )
    order = deliveries.groupBy("origin", "destination", "qos").agg(
        F.sum("out_of_order").alias("out_of_order")
    )
    rows = came.join(sent, list(_KEYS), "left").join(
        order, ["origin", "destination", "qos"], "left"
    )
    told = rows.join(_notes(rows, events), ["filter", "origin", "destination", "qos"], "left")
    offered_count = F.coalesce("offered", F.lit(0))
    return told.select(
        "filter",
        "origin",
        "destination",
        "qos",
        offered_count.alias("offered"),
        "arrived",
        (offered_count - F.col("arrived")).alias("missing"),
        F.coalesce("out_of_order", F.lit(0)).alias("out_of_order"),
        F.when(F.col("offered").isNull(), "offers not told")
        .otherwise(F.coalesce("note", F.lit("complete")))
        .alias("note"),
    ).select(*REPORT_TABLES["loss"].fieldNames())


def _notes(rows: DataFrame, events: DataFrame) -> DataFrame:
    """The first event within each row's span that makes it less than complete."""
    keys = ["filter", "origin", "destination", "qos"]
    told = [*keys, "kind", "at_us"]
    happened = events.where(F.col("kind").isin(*_NOTES))
    of_mesh = F.col("kind").startswith("mesh_")
    # Joined apart: of events of a mesh there are many, and most are of other filters.
    joined = happened.where(of_mesh).withColumnRenamed("broker", "destination")
    theirs = rows.join(
        joined.select("destination", "filter", "kind", "at_us"), ["filter", "destination"]
    )
    ends = F.array_distinct(F.array("origin", "destination"))
    watched = rows.select("*", F.explode(ends).alias("broker"))
    ours = watched.join(happened.where(~of_mesh).select("broker", "kind", "at_us"), "broker")
    within = (F.col("at_us") > F.col("first_us")) & (F.col("at_us") < F.col("last_us"))
    both = theirs.where(within).select(*told).union(ours.where(within).select(*told))
    notes = F.create_map(*(F.lit(word) for pair in _NOTES.items() for word in pair))
    first = F.min_by(notes[F.col("kind")], F.struct("at_us", "kind"))
    return both.groupBy(*keys).agg(first.alias("note"))


def traffic_matrix(arrived: DataFrame, agents_seen: DataFrame) -> DataFrame:
    """TRAFFIC_MATRIX from the partials of these names; rates are over the whole span."""
    span = agents_seen.agg(
        ((F.max("last_us") - F.min("first_us")).cast("double") / 1_000_000).alias("seconds")
    )
    return (
        arrived.groupBy("filter", "origin", "destination")
        .agg(F.sum("publications").alias("publications"), F.sum("bytes").alias("bytes"))
        .crossJoin(span)
        .withColumn("rate_per_s", F.col("publications") / F.nullif(F.col("seconds"), F.lit(0.0)))
        .select(*REPORT_TABLES["traffic_matrix"].fieldNames())
    )

"""What was offered and what arrived, per filter and pair of brokers: the traffic matrix, and loss.

A row says ``complete`` where the destination took part over the whole span: only there is what is
missing a loss. Otherwise ``note`` says what happened first: the destination joined the filter's
mesh after the first publication was offered, left it before the last, or an agent of the two
started or lost part of its spool in between, so that some of the counts are missing.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_KEYS = ("filter", "origin", "qos")
NOTES = {
    "mesh_joined": "joined later",
    "mesh_left": "left earlier",
    "agent_started": "an agent started",
    "spool_dropped": "records lost",
}
"""What to say of a row after the first event of one of these kinds."""


def loss(
    offered: DataFrame, arrived: DataFrame, deliveries: DataFrame, events: DataFrame
) -> DataFrame:
    """LOSS from the partials of these names."""
    sent = offered.groupBy(*_KEYS).agg(
        F.sum("publications").alias("offered"),
        F.min("first_us").alias("first_us"),
        F.max("last_us").alias("last_us"),
    )
    came = arrived.groupBy(*_KEYS, "destination").agg(F.sum("publications").alias("arrived"))
    order = deliveries.groupBy("origin", "destination", "qos").agg(
        F.sum("out_of_order").alias("out_of_order")
    )
    rows = came.join(sent, list(_KEYS), "left").join(
        order, ["origin", "destination", "qos"], "left"
    )
    told = _with_events(rows, events)
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
        .otherwise(F.coalesce(_note(), F.lit("complete")))
        .alias("note"),
    )


def _with_events(rows: DataFrame, events: DataFrame) -> DataFrame:
    """The rows, each beside what happened in its destination's mesh, and at the two agents."""
    entry = F.struct("at_us", "kind")
    noted = events.where(F.col("kind").isin(*NOTES))
    is_of_mesh = F.col("kind").startswith("mesh_")
    of_mesh = noted.where(is_of_mesh).withColumnRenamed("broker", "destination")
    meshes = of_mesh.groupBy("filter", "destination").agg(F.collect_list(entry).alias("of_mesh"))
    agents = noted.where(~is_of_mesh).groupBy("broker").agg(F.collect_list(entry).alias("of_agent"))
    for end in ("origin", "destination"):
        of_end = agents.select(F.col("broker").alias(end), F.col("of_agent").alias(f"at_{end}"))
        rows = rows.join(of_end, end, "left")
    return rows.join(meshes, ["filter", "destination"], "left")


def _note() -> Column:
    """The first event within the row's span that makes it less than complete."""
    none = F.array().cast("array<struct<at_us:bigint,kind:string>>")
    lists = ("of_mesh", "at_origin", "at_destination")
    happened = F.concat(*(F.coalesce(name, none) for name in lists))
    within = F.filter(
        happened,
        lambda one: (one["at_us"] > F.col("first_us")) & (one["at_us"] < F.col("last_us")),
    )
    notes = F.create_map(*(F.lit(word) for pair in NOTES.items() for word in pair))
    return notes[F.array_min(within)["kind"]]


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
    )

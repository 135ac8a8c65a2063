"""Load of brokers, links and flows; events, and how long it took to settle after each.

Events that follow each other within ``QUIET_US``, at whichever brokers, are one disturbance. It
began with its first event, which names it, and had settled with its last.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from federator_analytics.transforms.delays import weighted_quantiles

MEDIAN = {"round_trip_us_p50": 50}
_HIGHEST = ("rss_bytes", "send_queue_bytes", "custody_bytes", "loop_lag_us")
MISSING = ("collector_gap", "batches_missed")
"""What a collector, or the live source, says of batches that it could not have."""


def brokers(agents: DataFrame, agents_seen: DataFrame, names: DataFrame) -> DataFrame:
    """BROKERS from the partials of these names: sums, the greatest of each gauge, the last name."""
    lives = agents_seen.groupBy("broker").agg(
        (F.count_distinct("epoch") - 1).alias("restarts"),
        F.timestamp_micros(F.max("last_us")).alias("last_heard"),
    )
    called = names.groupBy("broker").agg(
        F.max_by("name", F.struct("last_us", "name")).alias("name")
    )
    window_us = F.col("window_ms").cast("double") * 1_000
    return (
        agents.join(lives, "broker")
        .join(called, "broker", "left")
        .withColumnsRenamed({name: f"{name}_max" for name in _HIGHEST})
        .withColumn("cpu_share", F.col("cpu_us") / F.nullif(window_us, F.lit(0.0)))
    )


def links(told: DataFrame, medians: DataFrame) -> DataFrame:
    """LINKS from the partial ``links`` and ``median_round_trips``: both ends' words as one row."""
    forth = F.col("broker") < F.col("neighbour")
    half = told.select("*", *_ends())

    rows = half.groupBy("a", "b").agg(
        (F.sum("up").cast("double") / F.sum("windows")).alias("up_share"),
        F.min("round_trip_us").alias("round_trip_us_min"),
        F.sum(F.when(forth, F.col("bytes_out")).otherwise(0)).alias("bytes_ab"),
        F.sum(F.when(~forth, F.col("bytes_out")).otherwise(0)).alias("bytes_ba"),
        F.sum(F.when(forth, F.col("publications_out")).otherwise(0)).alias("publications_ab"),
        F.sum(F.when(~forth, F.col("publications_out")).otherwise(0)).alias("publications_ba"),
        F.sum("duplicates").alias("duplicates"),
        F.max("queue_bytes").alias("queue_bytes_max"),
        *(
            column
            for end, way in (("ab", forth), ("ba", ~forth))
            for column in (
                F.max(F.when(way, F.col("capacity"))).alias(f"capacity_{end}"),
                _load(way).alias(f"load_{end}"),
            )
        ),
    )
    return rows.join(medians, ["a", "b"], "left")


def _load(way: Column) -> Column:
    """The share of its capacity that a link carried; NULL where nobody told that."""
    room_bytes = F.sum(F.when(way, F.col("room_bytes"))).cast("double")
    return F.sum(F.when(way, F.col("bytes_out_of_room"))) / F.nullif(room_bytes, F.lit(0.0))


FLOWS_MAX = 64
"""Flows of one origin in the table, the heaviest: what its clients, or who lies, can put there."""


def flows(told: DataFrame) -> DataFrame:
    """FLOWS from the partial ``flows``: of each origin those that carried most."""
    heaviest = Window.partitionBy("broker").orderBy(F.desc("bytes"), "flow")
    window_ms = F.nullif(F.col("window_ms").cast("double"), F.lit(0.0))
    return (
        told.withColumn("place", F.row_number().over(heaviest))
        .where(F.col("place") <= FLOWS_MAX)
        .select(
            F.col("broker").alias("origin"),
            "flow",
            (F.col("bytes") * 8_000.0 / window_ms).alias("rate"),
            F.col("rate").alias("rate_max"),
            "bytes",
            (F.col("planned_ms") / window_ms).alias("planned_share"),
        )
    )


def median_round_trips(round_trips: DataFrame) -> DataFrame:
    """(a, b, *MEDIAN) from the partial ``round_trips``, of both ends together."""
    return weighted_quantiles(
        round_trips.where(F.col("round_trip_us").isNotNull()).select("*", *_ends()),
        keys=("a", "b"),
        value="round_trip_us",
        weight="windows",
        percents=MEDIAN,
    )


def _ends() -> tuple[Column, Column]:
    return F.least("broker", "neighbour").alias("a"), F.greatest("broker", "neighbour").alias("b")


def span(agents_seen: DataFrame, events: DataFrame, duplicates: DataFrame) -> DataFrame:
    """SPAN from the partials of these names, one row per federation.

    What a spool dropped for room may have been read before; what is missing the reader tells.
    """
    dropped = (
        events.where(F.col("kind").isin(*MISSING))
        .groupBy("federation")
        .agg(F.sum(F.coalesce("value", F.lit(1)) * F.col("one")).alias("dropped_batches"))
    )
    agents = F.count_distinct("broker", "epoch")
    return (
        agents_seen.groupBy("federation")
        .agg(
            F.timestamp_micros(F.min("first_us")).alias("first"),
            F.timestamp_micros(F.max("last_us")).alias("last"),
            F.sum("records").alias("records"),
            F.count_distinct("broker").alias("brokers"),
            (agents - F.count_distinct("broker")).alias("restarts"),
        )
        .join(dropped, "federation", "left")
        .join(duplicates, "federation", "left")
        .na.fill(0, ["dropped_batches", "records_twice"])
        .withColumnRenamed("records_twice", "duplicates_removed")
    )


QUIET_US = 3_000_000
"""The time for which a broken link may go unnoticed (``hello_timeout``); later is a new story."""

STRUCTURAL = (
    *("link_up", "link_down", "broker_up", "broker_down", "agent_started", "agent_stopped"),
    *("core_changed", "mesh_joined", "mesh_left", "parent_changed"),
    *("controller_changed", "takeover"),
)
"""Kinds that take part in a disturbance."""


def events(happened: DataFrame) -> DataFrame:
    """EVENTS from the partial ``events``."""
    told = happened.select("*", F.explode(F.sequence(F.lit(1).cast("long"), "one")))
    return told.withColumn("window_start", F.timestamp_micros("at_us"))


def convergence(happened: DataFrame) -> DataFrame:
    """CONVERGENCE from the partial ``events``."""
    in_time = Window.orderBy("at_us", "kind", "broker")
    gap_us = F.col("at_us") - F.lag("at_us").over(in_time)
    begins = F.when(gap_us <= QUIET_US, 0).otherwise(1)
    numbered = (
        happened.where(F.col("kind").isin(*STRUCTURAL))
        .withColumn("begins", begins)
        .withColumn("story", F.sum("begins").over(in_time))
    )
    stories = numbered.groupBy("story").agg(
        F.min_by("kind", F.struct("at_us", "kind", "broker")).alias("what"),
        F.min("at_us").alias("first_us"),
        F.max("at_us").alias("last_us"),
        F.count_distinct("broker").alias("brokers"),
    )
    return stories.select(
        "what",
        F.timestamp_micros("first_us").alias("started"),
        F.timestamp_micros("last_us").alias("settled"),
        (F.col("last_us") - F.col("first_us")).alias("duration_us"),
        "brokers",
    )

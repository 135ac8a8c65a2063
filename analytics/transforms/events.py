"""Events, and how long the federation took to settle after each disturbance.

Events that follow each other within ``QUIET_US``, at whichever brokers, are one disturbance. It
began with its first event, which names it, and had settled with its last.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

QUIET_US = 3_000_000
"""The time for which a broken link may go unnoticed (``hello_timeout``); later is a new story."""

STRUCTURAL = (
    "link_up",
    "link_down",
    "core_changed",
    "mesh_joined",
    "mesh_left",
    "parent_changed",
    "broker_up",
    "broker_down",
    "controller_changed",
    "takeover",
    "agent_started",
    "agent_stopped",
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

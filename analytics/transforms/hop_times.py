"""Times per hop, by joining what the agents on a sampled frame's way saw of it.

Every agent samples the same frames. A frame's rows form a tree: each receiver names its sender.
From each destination the way is climbed to the origin; each step's time is the receiver's instant
minus the sender's, corrected by the difference of their clocks. A way with a row missing (a lost
batch) is left out. Where traffic does not compare the two clocks, and one of them is of a group
whose clocks differ, nobody knows how far they are apart: the step is as measured, and flagged.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from analytics.schemas.fields import struct
from analytics.transforms.clocks import TOLERANCE_US
from analytics.transforms.quantiles import weighted_quantiles

FRAME = ("origin", "origin_epoch", "seq", "custody")
HOPS_MAX = 255
"""A frame's hop limit: rows above it are not climbed."""
STEPS = "array<struct<hop:bigint,sender:bigint,receiver:bigint,step_us:bigint>>"
RELATIVE = struct("broker long", "group long", "relative_us long", "disputed long")


def hop_times(
    hops: DataFrame, pairs: DataFrame, relative_us: Mapping[int, tuple[int, int]]
) -> DataFrame:
    """HOP_TIMES.

    Args: hops: The partial of this name. pairs: PAIRS: a broker at which frames of that origin
    were delivered is a destination, others on the way only relay. relative_us: Brokers' clocks, as
    ``clocks.Clocks`` tells them.
    """
    keys = ("origin", "destination", "hop", "sender", "receiver")
    disputed = {group for group, us in relative_us.values() if us}
    clocks = hops.sparkSession.createDataFrame(
        [(broker, *told, int(told[0] in disputed)) for broker, told in sorted(relative_us.items())],
        RELATIVE,
    )
    steps = _corrected(_steps(hops, pairs).select(*keys, "step_us"), clocks)
    doubtful = (F.min("step_us") < -TOLERANCE_US) | (F.max("unknown") > 0)
    quantiles = weighted_quantiles(
        steps.select(*keys, "step_us", F.lit(1).alias("one")),
        keys=keys,
        value="step_us",
        weight="one",
        percents={"hop_us_p50": 50, "hop_us_p95": 95},
    )
    counted = steps.groupBy(*keys).agg(
        F.count(F.lit(1)).alias("samples"),
        F.when(doubtful, "flagged")
        .when(F.max("shift_us") != 0, "corrected")
        .otherwise("ok")
        .alias("quality"),
    )
    return counted.join(quantiles, list(keys)).select(
        *keys, "samples", "hop_us_p50", "hop_us_p95", "quality"
    )


def _steps(hops: DataFrame, pairs: DataFrame) -> DataFrame:
    """(origin, destination, hop, sender, receiver, step_us), uncorrected, of whole ways."""
    entry = F.struct("receiver", F.struct("hop", "sender", "at_us"))
    frames = hops.groupBy(*FRAME).agg(F.collect_list(entry).alias("entries"))
    trees = frames.select("origin", "entries", F.map_from_entries("entries").alias("tree"))
    ends = trees.select("origin", "tree", F.explode("entries.receiver").alias("destination"))
    wanted = ends.join(
        pairs.select("origin", "destination"), ["origin", "destination"], "left_semi"
    )
    length = F.try_element_at("tree", "destination")["hop"]
    ways = wanted.where(length.between(1, HOPS_MAX)).select(
        "origin", "destination", length.alias("length"), _climb(length).alias("steps")
    )
    whole = F.forall("steps", lambda step: step["step_us"].isNotNull())
    return ways.where(whole & (F.size("steps") == F.col("length"))).select(
        "origin", "destination", F.inline("steps")
    )


def _climb(length: Column) -> Column:
    """The steps from ``destination`` up to the origin."""
    start = F.struct(
        F.col("destination").alias("at"),
        F.lit(None).cast(STEPS).alias("none"),
        F.array().cast(STEPS).alias("steps"),
    )

    def step(so_far: Column, hop: Column) -> Column:
        here = F.try_element_at("tree", so_far["at"])
        before = F.try_element_at("tree", here["sender"])
        taken = F.struct(
            here["hop"].alias("hop"),
            here["sender"].alias("sender"),
            so_far["at"].alias("receiver"),
            (here["at_us"] - before["at_us"]).alias("step_us"),
        )
        return F.struct(
            here["sender"].alias("at"),
            so_far["none"].alias("none"),
            F.concat(so_far["steps"], F.array(taken)).alias("steps"),
        )

    climbed = F.aggregate(F.sequence(F.lit(1).cast("long"), length), start, step)
    return climbed["steps"]


def _corrected(steps: DataFrame, clocks: DataFrame) -> DataFrame:
    """The difference of the two clocks taken off, where both are of one group.

    Elsewhere ``unknown`` is 1 when one of the two is of a group whose clocks differ.
    """
    of_sender = clocks.select(
        F.col("broker").alias("sender"),
        F.col("group").alias("g1"),
        F.col("relative_us").alias("r1"),
        F.col("disputed").alias("d1"),
    )
    of_receiver = clocks.select(
        F.col("broker").alias("receiver"),
        F.col("group").alias("g2"),
        F.col("relative_us").alias("r2"),
        F.col("disputed").alias("d2"),
    )
    told = steps.join(of_sender, "sender", "left").join(of_receiver, "receiver", "left")
    compared = F.col("g1") == F.col("g2")
    shift = F.when(compared, F.col("r2") - F.col("r1")).otherwise(0)
    unknown = F.when(compared, 0).otherwise(F.greatest("d1", "d2", F.lit(0)))
    return told.withColumns({"shift_us": shift, "unknown": unknown}).withColumn(
        "step_us", F.col("step_us") - F.col("shift_us")
    )

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

from federator_analytics.schemas.fields import here, struct
from federator_analytics.transforms.clocks import TOLERANCE_US
from federator_analytics.transforms.delays import weighted_quantiles

FRAME = ("origin", "origin_epoch", "seq", "custody")
STEP = ("origin", "destination", "hop", "sender", "receiver")
PERCENTS = {"hop_us_p50": 50, "hop_us_p95": 95}
HOPS_MAX = 255
"""A frame's hop limit: rows above it are not climbed."""
STEPS = "array<struct<hop:bigint,sender:bigint,receiver:bigint,step_us:bigint>>"
RELATIVE = struct("broker long", "group long", "relative_us long", "disputed long")


def hop_times(
    quantiles: DataFrame, pairs: DataFrame, relative_us: Mapping[int, tuple[int, int]]
) -> DataFrame:
    """HOP_TIMES.

    Args: quantiles: ``step_quantiles``. pairs: PAIRS. relative_us: Brokers' clocks, as
    ``clocks.Clocks`` tells them.
    """
    disputed = {group for group, us in relative_us.values() if us}
    clocks = here(
        quantiles.sparkSession,
        [(broker, *told, int(told[0] in disputed)) for broker, told in sorted(relative_us.items())],
        RELATIVE,
    )
    told = _with_clocks(_delivered(quantiles, pairs), clocks)
    doubtful = (F.col("least_us") - F.col("shift_us") < -TOLERANCE_US) | (F.col("unknown") > 0)
    return told.select(
        *STEP,
        "samples",
        *((F.col(name) - F.col("shift_us")).alias(name) for name in PERCENTS),
        F.when(doubtful, "flagged")
        .when(F.col("shift_us") != 0, "corrected")
        .otherwise("ok")
        .alias("quality"),
    )


def step_quantiles(taken: DataFrame) -> DataFrame:
    """(*STEP, samples, *PERCENTS, least_us) of ``steps``, as measured."""
    return weighted_quantiles(
        taken.withColumn("one", F.lit(1)),
        keys=STEP,
        value="step_us",
        weight="one",
        percents=PERCENTS,
        total="samples",
        least="least_us",
    )


def steps(hops: DataFrame, pairs: DataFrame | None = None) -> DataFrame:
    """(*FRAME, destination, hop, sender, receiver, step_us), uncorrected, of whole ways.

    Args:
        hops: The partial of this name: all rows of each frame.
        pairs: To leave out what ``hop_times`` will not tell.
    """
    entry = F.struct("receiver", F.struct("hop", "sender", "at_us"))
    frames = hops.groupBy(*FRAME).agg(F.collect_list(entry).alias("entries"))
    trees = frames.select(*FRAME, "entries", F.map_from_entries("entries").alias("tree"))
    ends = trees.select(*FRAME, "tree", F.explode("entries.receiver").alias("destination"))
    wanted = ends if pairs is None else _delivered(ends, pairs)
    length = F.try_element_at("tree", "destination")["hop"]
    ways = wanted.select(*FRAME, "destination", "tree", length.alias("length"))
    # Outer, and the empty ones left out after: else Spark climbs each way once more to filter it.
    return (
        ways.where(F.col("length").between(1, HOPS_MAX))
        .select(*FRAME, "destination", F.inline_outer(_climb(F.col("length"))))
        .where(F.col("hop").isNotNull())
    )


def _delivered(rows: DataFrame, pairs: DataFrame) -> DataFrame:
    """The rows whose destination had deliveries of that origin; other brokers only relay."""
    known = F.broadcast(pairs.select("origin", "destination"))
    return rows.join(known, ["origin", "destination"], "left_semi")


def _climb(length: Column) -> Column:
    """The steps from ``destination`` up to the origin; none where one is missing."""
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

    def whole(climbed: Column) -> Column:
        steps = climbed["steps"]
        known = F.forall(steps, lambda taken: taken["step_us"].isNotNull())
        return F.when(known & (F.size(steps) == length), steps)

    return F.aggregate(F.sequence(F.lit(1).cast("long"), length), start, step, whole)


def _with_clocks(steps: DataFrame, clocks: DataFrame) -> DataFrame:
    """``shift_us``: the difference of the two clocks, where both are of one group.

    Elsewhere ``unknown`` is 1 when one of the two is of a group whose clocks differ.
    """
    for end, number in (("sender", 1), ("receiver", 2)):
        of_end = clocks.toDF(end, f"group{number}", f"us{number}", f"disputed{number}")
        steps = steps.join(F.broadcast(of_end), end, "left")
    compared = F.col("group1") == F.col("group2")
    shift = F.when(compared, F.col("us2") - F.col("us1")).otherwise(0)
    unknown = F.when(compared, 0).otherwise(F.greatest("disputed1", "disputed2", F.lit(0)))
    return steps.withColumns({"shift_us": shift, "unknown": unknown})

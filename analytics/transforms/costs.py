"""What carrying data costs, and what of it was lost: what was offered, and what arrived.

Costs are control traffic against announcements and data, and copies of data. An announcement is one
flood that a core starts; the paper's bound on its messages is 2l on l links (docs/protocol.md 6).
Messages are counted where they were sent.

A row of loss says ``complete`` where the destination took part over the whole span: only there is
what is missing a loss. Otherwise ``note`` says what happened first: the destination joined the
filter's mesh after the first publication was offered, left it before the last, or an agent of the
two started or lost part of its spool in between, so that some of the counts are missing.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

FLOOD = "core_ann"
"""The kind of control message that floods."""


def control_by_kind(control: DataFrame) -> DataFrame:
    """CONTROL_BY_KIND from the partial ``control``."""
    return control.where(F.col("direction") == "out").select(
        "broker", "neighbour", "kind", "messages", "bytes"
    )


def overhead(
    deliveries: DataFrame,
    offered: DataFrame,
    links: DataFrame,
    control: DataFrame,
    announcements: DataFrame,
    agents_seen: DataFrame,
) -> DataFrame:
    """OVERHEAD from the partials of these names: a row over all, and one per way of carrying.

    Beside each is one row of sums over everything.
    """
    sent = control.where("direction = 'out'")
    sums = [
        agents_seen.agg(F.expr("count(DISTINCT broker) AS brokers")),
        links.agg(
            F.expr(
                "count(DISTINCT least(broker, neighbour), greatest(broker, neighbour)) AS links"
            ),
            _total("bytes_out", "data_bytes"),
            _total("publications_out", "data_copies"),
            _total("duplicate_publications", "duplicates_suppressed"),
        ),
        sent.agg(
            _total("messages", "control_messages"),
            _total("bytes", "control_bytes"),
            _total(f"if(kind = '{FLOOD}', messages, 0)", "flood_messages"),
        ),
        announcements.agg(_total("announcements", "announcements")),
        offered.agg(_total("publications", "publications_offered")),
        deliveries.agg(
            _total("publications", "publications_delivered"),
            F.expr("count(DISTINCT strategy, redundancy) AS ways"),
        ),
    ]
    whole = reduce(DataFrame.crossJoin, sums)
    over_all = deliveries.sparkSession.range(0, 1, 1, 1).selectExpr(
        "NULL AS strategy", "NULL AS redundancy", "NULL AS delivered", "NULL AS offered"
    )
    rows = over_all.union(_ways(deliveries, offered)).crossJoin(whole)
    told = rows.selectExpr(
        *("strategy", "redundancy", "brokers", "links", "links * 2 AS bound_2l"),
        "if(strategy IS NULL, publications_delivered, delivered) AS publications_delivered",
        "if(strategy IS NULL, publications_offered, offered) AS publications_offered",
        *(f"if(strategy IS NULL OR ways = 1, {name}, NULL) AS {name}" for name in _SHARED),
    )
    return told.selectExpr(
        "*",
        *(
            f"CAST({over} AS double) / nullif({under}, 0) AS {name}"
            for name, (over, under) in _RATIOS.items()
        ),
    )


_SHARED = (
    *("announcements", "flood_messages", "control_messages", "control_bytes"),
    *("data_bytes", "data_copies", "duplicates_suppressed"),
)
"""Measured per link, which has no strategy: known of a way where it is the only one."""
_RATIOS = {
    "control_messages_per_announcement": ("flood_messages", "announcements"),
    "control_bytes_per_data_byte": ("control_bytes", "data_bytes"),
    "copies_per_publication": ("data_copies", "publications_delivered"),
}
"""Each what by what."""


def _ways(deliveries: DataFrame, offered: DataFrame) -> DataFrame:
    """(strategy, redundancy, delivered, offered), of publications. Offers have no redundancy."""
    ways = deliveries.groupBy("strategy", "redundancy").agg(
        F.expr("sum(publications) AS delivered")
    )
    by_strategy = offered.groupBy("strategy").agg(F.expr("sum(publications) AS offered"))
    return ways.join(by_strategy, "strategy", "left").selectExpr(
        "strategy",
        "redundancy",
        "delivered",
        "if(count(*) OVER (PARTITION BY strategy) = 1, offered, NULL) AS offered",
    )


def _total(of: str, name: str) -> Column:
    return F.expr(f"coalesce(sum({of}), 0) AS {name}")


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

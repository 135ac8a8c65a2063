"""What carrying data costs: control traffic against announcements and data, and copies of data.

An announcement is one flood that a core starts; the paper's bound on its messages is 2l on l links
(docs/protocol.md 6). Messages are counted where they were sent.
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

"""What carrying data costs: control traffic against announcements and data, and copies of data.

An announcement is one flood that a core starts; the paper's bound on its messages is 2l on l links
(docs/protocol.md, section 5). Messages are counted where they were sent.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from analytics.schemas.reports import REPORT_TABLES

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
    """OVERHEAD from the partials of these names: a row over all, and one per way of carrying."""
    whole = _whole(deliveries, offered, links, control, announcements, agents_seen)
    ways = deliveries.groupBy("strategy", "redundancy").agg(
        F.sum("publications").alias("publications_delivered")
    )
    by_strategy = offered.groupBy("strategy").agg(
        F.sum("publications").alias("publications_offered")
    )
    several = ways.agg((F.count(F.lit(1)) > 1).alias("several"))
    one_redundancy = ways.groupBy("strategy").agg((F.count(F.lit(1)) == 1).alias("alone"))
    rows = (
        ways.join(by_strategy, "strategy", "left")
        .join(one_redundancy, "strategy")
        .withColumn("publications_offered", F.when(F.col("alone"), F.col("publications_offered")))
        .crossJoin(several)
        .crossJoin(whole.drop("publications_delivered", "publications_offered"))
    )
    rows = rows.withColumns({name: F.when(~F.col("several"), F.col(name)) for name in _SHARED})
    all_ways = whole.withColumns(
        {"strategy": F.lit(None).cast("string"), "redundancy": F.lit(None).cast("long")}
    )
    return _with_ratios(all_ways.unionByName(rows.select(*all_ways.columns)))


_SHARED = (
    "announcements",
    "flood_messages",
    "control_messages",
    "control_bytes",
    "data_bytes",
    "data_copies",
    "duplicates_suppressed",
)
"""Measured per link, which has no strategy."""


def _whole(
    deliveries: DataFrame,
    offered: DataFrame,
    links: DataFrame,
    control: DataFrame,
    announcements: DataFrame,
    agents_seen: DataFrame,
) -> DataFrame:
    """One row: sums over everything."""
    sent = control.where(F.col("direction") == "out")
    ends = F.struct(F.least("broker", "neighbour"), F.greatest("broker", "neighbour"))
    parts = [
        agents_seen.agg(F.count_distinct("broker").alias("brokers")),
        links.agg(
            F.count_distinct(ends).alias("links"),
            _total("bytes_out").alias("data_bytes"),
            _total("publications_out").alias("data_copies"),
            _total("duplicate_publications").alias("duplicates_suppressed"),
        ),
        sent.agg(
            _total("messages").alias("control_messages"),
            _total("bytes").alias("control_bytes"),
            _total(F.when(F.col("kind") == FLOOD, F.col("messages"))).alias("flood_messages"),
        ),
        announcements.agg(_total("announcements").alias("announcements")),
        offered.agg(_total("publications").alias("publications_offered")),
        deliveries.agg(_total("publications").alias("publications_delivered")),
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.crossJoin(part)
    return whole


def _total(name: str | Column) -> Column:
    return F.coalesce(F.sum(name), F.lit(0))


def _with_ratios(rows: DataFrame) -> DataFrame:
    def per(over: str, under: str) -> Column:
        return F.col(over).cast("double") / F.nullif(F.col(under), F.lit(0))

    return rows.withColumns(
        {
            "control_messages_per_announcement": per("flood_messages", "announcements"),
            "bound_2l": F.col("links") * 2,
            "control_bytes_per_data_byte": per("control_bytes", "data_bytes"),
            "copies_per_publication": per("data_copies", "publications_delivered"),
        }
    ).select(*REPORT_TABLES["overhead"].fieldNames())

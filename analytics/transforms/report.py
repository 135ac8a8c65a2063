"""Partial aggregates to report tables: the same for the batch report and the stream."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from analytics.schemas.reports import REPORT_TABLES
from analytics.transforms import delays, happenings, hop_times, load, loss, overhead
from analytics.transforms.pairs import pair_facts


def report_tables(parts: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Every table of REPORT_TABLES.

    Args:
        parts: Those of ``record_partials``, merged; ``quarantine`` and ``quarantine_counts`` as
            they are reported; ``duplicates``: (federation, records_twice).
    """
    deliveries, links = parts["deliveries"], parts["links"]
    facts = pair_facts(parts["pair_windows"], links)
    pairs = facts.pairs(deliveries)
    seen = parts["agents_seen"]
    tables = {
        "delay": delays.delay(deliveries, parts["delays"], pairs),
        "delay_over_time": delays.delay_over_time(parts["delays"], pairs),
        "hop_times": hop_times.hop_times(parts["hops"], pairs, facts.clocks.relative_us),
        "overhead": overhead.overhead(
            deliveries, parts["offered"], links, parts["control"], parts["announcements"], seen
        ),
        "control_by_kind": overhead.control_by_kind(parts["control"]),
        "loss": loss.loss(parts["offered"], parts["arrived"], deliveries, parts["events"]),
        "events": happenings.events(parts["events"]),
        "convergence": happenings.convergence(parts["events"]),
        "brokers": load.brokers(parts["agents"], seen),
        "links": load.links(links, parts["round_trips"]),
        "traffic_matrix": loss.traffic_matrix(parts["arrived"], seen),
        "clocks": facts.clock_table(deliveries),
        "clients": delays.client_delays(parts["clients"]),
        "quarantine": parts["quarantine"],
        "quarantine_counts": parts["quarantine_counts"],
        "span": load.span(seen, parts["events"], parts["duplicates"]),
    }
    return {name: as_told(tables[name], schema) for name, schema in REPORT_TABLES.items()}


def as_told(table: DataFrame, schema: StructType) -> DataFrame:
    """The columns of ``schema``, in order and of its types."""
    return table.select(*(table[field.name].cast(field.dataType) for field in schema))

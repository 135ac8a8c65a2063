"""Partial aggregates to report tables: the same for the batch report and the stream."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from analytics.schemas.reports import REPORT_TABLES
from analytics.transforms import delays, happenings, hop_times, load, loss, overhead
from analytics.transforms.pairs import PairFacts

Planned = Mapping[str, Callable[[], DataFrame]]
"""What makes each table. Of a small one, that takes as long as computing it: it is done aside."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """What was sorted.

    Attributes:
        scopes: (scope, *FLOW, *PERCENTS), of ``transforms.delays``: corrected delays.
        windows: (window_us, *WAY, publications, *PERCENTS): delays as measured.
        steps: ``hop_times.step_quantiles``.
    """

    scopes: DataFrame
    windows: DataFrame
    steps: DataFrame


def report_tables(parts: Mapping[str, DataFrame], facts: PairFacts, found: Quantiles) -> Planned:
    """Every table of REPORT_TABLES.

    Args:
        parts: Those of ``partials.PARTIALS``, merged, but for those that the quantiles are of;
            ``quarantine`` and ``quarantine_counts`` as they are reported; ``duplicates``:
            (federation, records_twice).
        facts: Of pairs.
        found: Of the partials ``delays`` and ``hops``.
    """
    deliveries, links, seen = parts["deliveries"], parts["links"], parts["agents_seen"]
    pairs = facts.pairs(links)
    tables: dict[str, Callable[[], DataFrame]] = {
        "delay": lambda: delays.delay(deliveries, found.scopes, pairs),
        "delay_over_time": lambda: delays.delay_over_time(found.windows, pairs),
        "hop_times": lambda: hop_times.hop_times(found.steps, pairs, facts.clocks.relative_us),
        "overhead": lambda: overhead.overhead(
            deliveries, parts["offered"], links, parts["control"], parts["announcements"], seen
        ),
        "control_by_kind": lambda: overhead.control_by_kind(parts["control"]),
        "loss": lambda: loss.loss(parts["offered"], parts["arrived"], deliveries, parts["events"]),
        "events": lambda: happenings.events(parts["events"]),
        "convergence": lambda: happenings.convergence(parts["events"]),
        "brokers": lambda: load.brokers(parts["agents"], seen),
        "links": lambda: load.links(links, parts["round_trips"]),
        "traffic_matrix": lambda: loss.traffic_matrix(parts["arrived"], seen),
        "clocks": lambda: facts.clock_table(deliveries),
        "clients": lambda: delays.client_delays(parts["clients"]),
        "quarantine": lambda: parts["quarantine"],
        "quarantine_counts": lambda: parts["quarantine_counts"],
        "span": lambda: load.span(seen, parts["events"], parts["duplicates"]),
    }
    return {name: partial(_planned, tables[name], schema) for name, schema in REPORT_TABLES.items()}


def _planned(table: Callable[[], DataFrame], schema: StructType) -> DataFrame:
    return as_told(table(), schema)


def as_told(table: DataFrame, schema: StructType) -> DataFrame:
    """The columns of ``schema``, in order and of its types."""
    kinds = {field.name: field.dataType for field in table.schema}
    return table.select(
        *(
            field.name
            if kinds[field.name] == field.dataType
            else table[field.name].cast(field.dataType)
            for field in schema
        )
    )

"""Partial aggregates to report tables: the same for the batch report and the stream."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from federator_analytics.schemas.reports import REPORT_TABLES
from federator_analytics.transforms import costs, delays, hop_times, load
from federator_analytics.transforms.clocks import PairFacts
from federator_analytics.transforms.load import convergence, events

Planned = Mapping[str, Callable[[], DataFrame]]
"""What makes each table. Of a small one, that takes as long as computing it: it is done aside."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is found in columns in memory, each by the table that wants it."""

    # (scope, *FLOW, *PERCENTS), of ``transforms.delays``: corrected delays.
    scopes: Callable[[], DataFrame]
    # (window_us, *WAY, publications, *PERCENTS): delays as measured.
    windows: Callable[[], DataFrame]
    steps: Callable[[], DataFrame]  # ``hop_times.step_quantiles``
    loss: Callable[[], DataFrame]  # ``loss.judged``


def report_tables(parts: Mapping[str, DataFrame], facts: PairFacts, found: Found) -> Planned:
    """Every table of REPORT_TABLES.

    Args:
        parts: What OF_PARTS is made of, and ``deliveries``.
        facts: Of pairs.
        found: Of the partials ``delays`` and ``hops``, and of offers and arrivals.
    """
    deliveries, links = parts["deliveries"], parts["links"]
    pairs = facts.pairs(links)
    tables: dict[str, Callable[[], DataFrame]] = {
        name: partial(_of_parts, parts, table, of) for name, (table, of) in OF_PARTS.items()
    }
    tables |= {
        "delay": lambda: delays.delay(deliveries, found.scopes(), pairs),
        "delay_over_time": lambda: delays.delay_over_time(found.windows(), pairs),
        "hop_times": lambda: hop_times.hop_times(found.steps(), pairs, facts.clocks.relative_us),
        "clocks": lambda: facts.clock_table(deliveries),
        "loss": found.loss,
    }
    return {name: partial(_planned, tables[name], schema) for name, schema in REPORT_TABLES.items()}


def _of_parts(
    parts: Mapping[str, DataFrame], table: Callable[..., DataFrame], of: tuple[str, ...]
) -> DataFrame:
    return table(*(parts[name] for name in of))


def quarantine_lines(quarantined: DataFrame) -> DataFrame:
    """The partial ``quarantine`` with a row per line: ``one`` says how many are alike."""
    alike = F.sequence(F.lit(1).cast("long"), "one")
    return quarantined.select("*", F.explode(alike).alias("_")).drop("_")


def quarantine_counts(lines: DataFrame) -> DataFrame:
    return lines.groupBy("reason").agg(F.count(F.lit(1)).alias("records"))


OF_PARTS: dict[str, tuple[Callable[..., DataFrame], tuple[str, ...]]] = {
    "overhead": (
        costs.overhead,
        ("deliveries", "offered", "links", "control", "announcements", "agents_seen"),
    ),
    "control_by_kind": (costs.control_by_kind, ("control",)),
    "events": (events, ("happened",)),
    "convergence": (convergence, ("unsettled",)),
    "brokers": (load.brokers, ("agents", "agents_seen", "names")),
    "links": (load.links, ("links", "median_round_trips")),
    "flows": (load.flows, ("flows",)),
    "traffic_matrix": (costs.traffic_matrix, ("arrived", "agents_seen")),
    "clients": (delays.client_delays, ("clients",)),
    "quarantine": (lambda part: part, ("quarantine",)),
    "quarantine_counts": (lambda part: part, ("quarantine_counts",)),
    "span": (load.span, ("agents_seen", "events", "duplicates")),
}
"""Tables that are made of partials alone, and of which: while these stay as they are, so do they.

``happened`` and ``unsettled`` are the partial ``events``, or of it what the tables on disk lack:
what is not in ``events`` yet, and what takes part in disturbances that are to be told anew.
``median_round_trips`` is of the partial ``round_trips``.
"""
GROWING = ("events", "quarantine")
"""Tables of which each row is of one row of their partial: those of new records are added."""
EVENTS_READ = load.MISSING
"""Kinds of events that tables other than ``events`` and ``convergence`` are made of."""


def _planned(make: Callable[[], DataFrame], schema: StructType) -> DataFrame:
    """The columns of ``schema``, in order and of its types, of a table that may have others too.

    Told as text: a Column made in Python takes five calls of Java, and the stream makes all anew
    each second.
    """
    table = make()
    kinds = {field.name: field.dataType for field in table.schema}
    return table.selectExpr(
        *(
            f"`{field.name}`"
            if kinds[field.name] == field.dataType
            else f"CAST(`{field.name}` AS {field.dataType.simpleString()})"
            for field in schema
        )
    )

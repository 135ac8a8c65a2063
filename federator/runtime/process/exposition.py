"""Metrics for Prometheus: definitions, and plain numbers beside them.

The counting code keeps plain integers; a scrape collects them by the attribute names of a table of
definitions (``scrape`` makes text of both). So counting costs an addition, and a metric's name,
type and meaning are written once, where docs and tests can read them.

Names follow Prometheus: base units, ``_total`` for counters. No label holds a topic, a filter or a
client; every label has few values.

Source: https://prometheus.io/docs/practices/naming/
"""

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from federator import __version__

Kind = Literal["counter", "gauge", "histogram"]
Labelled = Mapping[tuple[str, ...], int | float]
"""Values by label values, in the order of ``Definition.labels``."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The observations that a histogram shows.

    Attributes:
        bounds: Upper bounds of the buckets, ascending.
        counts: Observations per bucket; one more than bounds, for what is greater than all.
        sum: Of all observations.
    """

    bounds: Sequence[float]
    counts: Sequence[int]
    sum: float


Value = int | float | Labelled | Distribution


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric: ``attribute`` is the name under which its value is handed over."""

    attribute: str
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


def table(
    kind: Kind, *rows: tuple[str, str, str], prefix: str = "federator_", labels: Sequence[str] = ()
) -> tuple[Definition, ...]:
    """Definitions of one kind, given as (attribute, name without prefix and suffix, meaning)."""
    suffix = "_total" if kind == "counter" else ""
    return tuple(
        Definition(attribute, f"{prefix}{name}{suffix}", kind, meaning, tuple(labels))
        for attribute, name, meaning in rows
    )


PROCESS: Final = table(
    "gauge", ("build", "build_info", "1; the labels say what runs."), labels=("version", "python")
)
"""Metrics of each of our processes; ``scrape`` adds those of any process."""


Family = tuple[Definition, Value]
"""One metric and its current value."""


def build_info() -> Iterator[Family]:
    """The metric that shows our release and the Python version."""
    labels = (__version__, platform.python_version())
    return families(PROCESS, {"build": {labels: 1}})


def families(definitions: Iterable[Definition], values: Mapping[str, Value]) -> Iterator[Family]:
    """The values, each with its definition; an absent value is an absent metric.

    Raises:
        KeyError: A value has no definition.
    """
    rows = tuple(definitions)
    if unknown := values.keys() - {row.attribute for row in rows}:
        raise KeyError(f"no metric for {sorted(unknown)}")
    return ((row, values[row.attribute]) for row in rows if row.attribute in values)

"""Metrics for Prometheus: definitions of what a daemon's record shows as numbers.

The counting code keeps plain integers, and a daemon's record names them, for all its pages. A
definition says where in the record a metric stands, so its name, type and meaning are written once,
where docs and tests can read them; ``scrape`` makes text of both.

Names follow Prometheus: base units, ``_total`` for counters. No label holds a topic, a filter or a
client; every label has few values.

Source: https://prometheus.io/docs/practices/naming/
"""

import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Literal, cast

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
    """One metric, and where its value stands in a record.

    Attributes:
        attribute: The name of the value within ``under``. ``=``: the value is 1, and
            the labels are values there.
        under: The path of the section in the record, such as ``counters.data``.
        by: If the section is a list of entries, or a mapping of entries by key: the metric is
            in each entry, and labelled with these values of it, or with its key if there are none.
    """

    attribute: str
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    under: str = ""
    by: tuple[str, ...] | None = None


def table(prefix: str, text: str) -> tuple[Definition, ...]:
    """The definitions in ``text``: lines of an attribute, a name without ``prefix``, a meaning.

    They are indented by two; a line that is indented by more continues the one before. Above them
    stands what they share: their kind, the section that they are ``under`` (``.`` is the record
    itself; with keys in brackets it has entries, labelled ``by`` these) and their labels.
    """
    rows: list[Definition] = []
    for line in re.sub(r"\n {3,}", " ", text.strip()).splitlines():
        if not line.startswith(" "):
            kind, where, *labels = line.split()
            under, bracket, keys = where.removesuffix("]").partition("[")
            by = tuple(keys.split(",")) if keys else ()
            continue
        attribute, name, meaning = line.split(None, 2)
        rows.append(
            Definition(
                attribute,
                f"{prefix}_{name}{'_total' if kind == 'counter' else ''}",
                cast("Kind", kind),
                meaning,
                tuple(labels),
                under.strip("."),
                by if bracket else None,
            )
        )
    return tuple(rows)


PROCESS: Final = table(
    "federator",
    """
gauge . version python
  = build_info 1; the labels say what runs.
""",
)
"""Metrics of each of our processes; ``scrape`` adds those of any process."""

Family = tuple[Definition, Value]
"""One metric and its current value."""


def build_info() -> Iterator[Family]:
    """The metric that shows our release and the Python version."""
    return families(PROCESS, {"version": __version__, "python": platform.python_version()})


def families(definitions: Iterable[Definition], record: object) -> Iterator[Family]:
    """The metrics with their values in ``record``; an absent value is an absent metric."""
    sections: dict[str, Any] = {}
    for row in definitions:
        if row.under not in sections:
            sections[row.under] = reduce(_get, filter(None, row.under.split(".")), record)
        section = sections[row.under]
        value = _value(section, row) if row.by is None else _by_entry(section, row)
        if value is not None:
            yield row, value


def _value(section: object, row: Definition) -> Value | None:
    if row.attribute == "=":
        labels = tuple(str(_get(section, label)) for label in row.labels)
        return {labels: 1} if all(labels) else None
    value: Value | None = _get(section, row.attribute)
    if not isinstance(value, dict):
        return value
    return {(str(key),): number for key, number in value.items()}


def _by_entry(section: Any, row: Definition) -> Value | None:  # noqa: ANN401
    """``row`` of each entry of ``section``; ``None`` if no entry has it."""
    values: dict[tuple[str, ...], Any] = {}
    if isinstance(section, dict):
        values = {(key,): _get(entry, row.attribute) for key, entry in section.items()}
    else:
        for entry in section or ():
            labels = tuple(str(_get(entry, key)) for key in row.by or ())
            values[labels] = _get(entry, row.attribute)
    return {labels: value for labels, value in values.items() if value is not None} or None


def _get(holder: object, name: str) -> Any:  # noqa: ANN401
    return holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)

"""summary.json: the figures of a report for programs (docs/analytics.md lists the keys)."""

from datetime import datetime
from typing import Any

from analytics.digest.figures import (
    convergence_figures,
    delay_figures,
    load_figures,
    loss_figures,
    overhead_figures,
    quality_figures,
    traffic_figures,
)
from analytics.digest.health import findings, verdict
from analytics.digest.tables import Row, Tables

SUMMARY_VERSION = 1
"""Grows when a key goes or changes its meaning; new keys may come without."""


def summarise(tables: Tables, title: str = "") -> dict[str, Any]:
    """Every figure, the findings in words, the verdict. Only JSON values.

    Without a title the report is named after its federation. The key ``span`` is None when there
    was no record at all.
    """
    span = next(iter(tables["span"]), None)
    summary: dict[str, Any] = {
        "version": SUMMARY_VERSION,
        "title": title or _title(span),
        "span": _span(span) if span and span["records"] else None,
        "delay": delay_figures(tables),
        "overhead": overhead_figures(tables),
        "loss": loss_figures(tables),
        "convergence": convergence_figures(tables),
        "load": load_figures(tables),
        "traffic": traffic_figures(tables),
        "quality": quality_figures(tables),
    }
    found = findings(summary)
    word, sentence = verdict(found)
    if summary["span"] is None:
        word, sentence = "unknown", "There is nothing to report on: no record was read."
    summary["verdict"], summary["sentence"] = word, sentence
    summary["findings"] = [
        {"weight": finding.weight, "section": finding.section, "text": finding.text}
        for finding in found
    ]
    return summary


def _title(span: Row | None) -> str:
    return f"Federation {span['federation']}" if span else "Report"


def _span(row: Row) -> dict[str, Any]:
    first, last = row["first"], row["last"]
    return {**row, "first": _iso(first), "last": _iso(last), "seconds": _seconds(first, last)}


def _iso(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def _seconds(first: datetime | None, last: datetime | None) -> float | None:
    return (last - first).total_seconds() if first and last else None

"""One HTML file from report tables: opens from disk, and fetches nothing (its policy forbids it).

Everything shown came from brokers' clients, who name topics as they like, so every text passes
through Jinja2's escaping, and the page's content policy allows no script but the page's own.
"""

import base64
import hashlib
import json
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from federator_analytics.digest.tables import Tables
from federator_analytics.digest.units import duration, some
from federator_analytics.report.changes import convergence_section
from federator_analytics.report.costs import loss_section, overhead_section
from federator_analytics.report.delay import delay_section
from federator_analytics.report.load import brokers_section, topology_section
from federator_analytics.report.traffic import quality_section, traffic_section

PAGE, SUMMARY = "report.html", "summary.json"
SHARED = "federator.console"
"""The package whose assets the report, the dashboard and the console share: one look."""

WEIGHTS = {"bad": "wrong", "look": "look", "note": "note"}
"""What stands before a finding."""

_SECTIONS = (
    delay_section,
    overhead_section,
    loss_section,
    convergence_section,
    topology_section,
    brokers_section,
    traffic_section,
    quality_section,
)


def page(tables: Tables, summary: dict[str, Any], *, made_at: datetime) -> str:
    """The report as HTML; ``made_at`` is in UTC."""
    environment = templates()
    script = asset("theme.js", SHARED) + asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    is_empty = summary["span"] is None
    return environment.get_template("report.html.j2").render(
        summary=summary,
        span=span_words(summary["span"]),
        sections=[] if is_empty else [make(tables, summary) for make in _SECTIONS],
        style=Markup(asset("theme.css", SHARED) + asset("report.css")),
        script=Markup(script),
        script_digest=digest,
        made_at=f"{made_at:%Y-%m-%d %H:%M} UTC",
        weights=WEIGHTS,
    )


def write_page(tables: Tables, summary: dict[str, Any], folder: Path, *, made_at: datetime) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = page(tables, summary, made_at=made_at)
    (folder / PAGE).write_text(text, encoding="utf-8")
    (folder / SUMMARY).write_text(summary_json(summary), encoding="utf-8")


def templates(**more: str) -> Environment:
    """The templates: the report's, and ``more`` by name. Every value is escaped."""
    known = {name: asset(name) for name in ("report.html.j2", "parts.html.j2")} | more
    return Environment(
        loader=DictLoader(known), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )


def summary_json(summary: dict[str, Any]) -> str:
    """The summary as the text of summary.json."""
    return json.dumps(summary, indent=2, ensure_ascii=False, default=str) + "\n"


def span_words(span: dict[str, Any] | None) -> str:
    """What was looked at, in a sentence."""
    if span is None:
        return ""
    first, last = (datetime.fromisoformat(span[key]) for key in ("first", "last"))
    until = f"{last:%H:%M:%S}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M:%S}"
    brokers, records = some(span["brokers"], "broker"), some(span["records"], "record")
    return (
        f"Federation {span['federation']}, {brokers}, {first:%Y-%m-%d %H:%M:%S} to {until} UTC "
        f"({duration(span['seconds'] * 1_000_000)}), {records}."
    )


def asset(name: str, package: str = "federator_analytics.report") -> str:
    """The text of one file of a package's folder ``assets``. Names are ours, never a client's."""
    return files(package).joinpath("assets", name).read_text(encoding="utf-8")

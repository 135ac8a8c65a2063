"""One HTML file from report tables: opens from disk, and fetches nothing (its policy forbids it).

Everything shown came from brokers' clients, who name topics as they like, so every text passes
through Jinja2's escaping, and the page's content policy allows no script but the page's own.
"""

import base64
import hashlib
import json
from datetime import datetime
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from analytics.digest.tables import Tables
from analytics.digest.units import duration, some
from analytics.report.changes import convergence_section
from analytics.report.costs import loss_section, overhead_section
from analytics.report.delay import delay_section
from analytics.report.load import brokers_section, topology_section
from analytics.report.traffic import quality_section, traffic_section

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
    """The report as HTML.

    Args:
        tables: What ``read_tables`` gave.
        summary: What ``summarise`` made of them.
        made_at: When the report was made, in UTC.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    script = _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    is_empty = summary["span"] is None
    return environment.from_string(_asset("report.html.j2")).render(
        summary=summary,
        span=_span_words(summary["span"]),
        sections=[] if is_empty else [make(tables, summary) for make in _SECTIONS],
        style=Markup(_asset("report.css")),
        script=Markup(script),
        script_digest=digest,
        made_at=f"{made_at:%Y-%m-%d %H:%M} UTC",
        weights={"bad": "wrong", "look": "look", "note": "note"},
    )


def summary_json(summary: dict[str, Any]) -> str:
    """The summary as the text of summary.json."""
    return json.dumps(summary, indent=2, ensure_ascii=False, default=str) + "\n"


def _asset(name: str) -> str:
    return files("analytics.report").joinpath("assets", name).read_text(encoding="utf-8")


def _span_words(span: dict[str, Any] | None) -> str:
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

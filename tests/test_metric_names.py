"""docs/observability.md lists every metric of our processes, as the code has it, and no other."""

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector

from federator.collector.app import COLLECTOR
from federator.console.metrics import CONSOLE
from federator.gateway.metrics import GATEWAY
from federator.runtime.observability.metrics import AGENT, LINK
from federator.runtime.process.exposition import PROCESS, Definition
from federator.steerer.app import STEERER

PAGE = (Path(__file__).parents[1] / "docs" / "observability.md").read_text("utf-8")
TABLES = {"process": PROCESS, "agent": AGENT, "link": LINK, "gateway": GATEWAY}
TABLES |= {"collector": COLLECTOR, "steerer": STEERER, "console": CONSOLE}
EVERY = [row for rows in TABLES.values() for row in rows]


def of_any_process():
    """What ``prometheus_client`` tells of our process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return [
        Definition(
            "", f"{f.name}_total" if f.type == "counter" else f.name, f.type, f.documentation
        )
        for f in registry.collect()
    ]


def on_page(table):
    """(name, kind, labels, meaning) of each row below the marker of ``table``."""
    rest = PAGE.split(f"<!-- metrics: {table} -->\n", 1)[1]
    rows = rest.split("\n\n", 1)[0].splitlines()[2:]
    return [re.fullmatch(r"\| `(\w+)` \| (\w+) \| (.*?) ?\| (.+) \|", row).groups() for row in rows]


@pytest.mark.parametrize("table", TABLES)
def test_every_metric_is_described_as_it_is_and_nothing_else_is(table):
    rows = TABLES[table] + (tuple(of_any_process()) if table == "process" else ())
    assert on_page(table) == [(r.name, r.kind, ", ".join(r.labels), r.help) for r in rows]
    assert re.findall(r"<!-- metrics: (\w+) -->", PAGE) == list(TABLES)


def test_names_follow_the_conventions_of_prometheus():
    for row in EVERY:
        assert re.fullmatch(r"federator(_[a-z]+)+", row.name), row.name
        assert row.name.endswith("_total") == (row.kind == "counter"), row.name
        assert not re.search(r"_(ms|us|millis|minutes|kb|mb|percent|count)(_|$)", row.name)
        if "bytes" in row.name.split("_"):
            assert row.name.removesuffix("_total").endswith("_bytes"), row.name
        assert row.help.endswith("."), row.name
    assert len({row.name for row in EVERY}) == len(EVERY)


def test_no_label_grows_with_topics_or_clients():
    bounded = {"version", "python", "federation", "broker", "security", "strategy"}
    bounded |= {"kind", "state", "neighbour", "spool", "url", "file", "name", "side", "leaf"}
    assert {label for row in EVERY for label in row.labels} <= bounded

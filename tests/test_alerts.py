"""The alert rules and the dashboard ask for metrics and labels that there are.

That Prometheus accepts them, and what sets them off, is tried by ``script/test-observability``.
"""

import re
from pathlib import Path

from tests.test_metric_names import EVERY, of_any_process

ROOT = Path(__file__).parents[1]
RULES = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text("utf-8")
STORIES = (ROOT / "tests" / "observability" / "alerts_test.yml").read_text("utf-8")

PROMETHEUS = {"up": (), "ALERTS": ("alertname", "alertstate", "severity")}
"""What Prometheus itself adds to what it scrapes."""
LABELS = {row.name: row.labels for row in (*EVERY, *of_any_process())} | PROMETHEUS
TARGET = {"instance", "job"}


SELECTOR = re.compile(
    r'"[^"]*"|(?<!\$)\b([A-Za-z][A-Za-z_]*)\b(?!\s*\()\s*(\{(?:[^"{}]|"[^"]*")*\})?'
)
"""A string, which is passed over, or a name that is no function, with its matchers."""


def metrics_in(expression):
    """(metric, its matchers) of each selector in a PromQL expression."""
    text = re.sub(r"\[[^]]*\]", " ", expression)
    text = re.sub(r"\b(by|on|group_left|without|ignoring)\s*\([^)]*\)", " ", text)
    return [
        (name, matchers)
        for name, matchers in SELECTOR.findall(text)
        if name and name not in ("and", "or", "unless", "bool", "offset")
    ]


def check(expression):
    """Assert that all that ``expression`` selects exists."""
    found = metrics_in(expression)
    assert found, expression
    for name, matchers in found:
        whole = re.sub(r"_(bucket|sum|count)$", "", name)
        assert whole in LABELS, f"no metric {name}: {expression}"
        allowed = {*LABELS[whole], *TARGET, *({"le"} if whole != name else ())}
        assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= allowed, expression
    known = {label for labels in LABELS.values() for label in labels} | TARGET | {"le"}
    known |= set(re.findall(r'label_\w+\(.*?, "(\w+)"', expression))  # made by the expression
    known |= set(re.findall(r'count_values.*?\("(\w+)"', expression))
    for labels in re.findall(r"\b(?:by|on|group_left)\s*\(([^)]*)\)", expression):
        assert {label.strip() for label in labels.split(",") if label.strip()} <= known, expression


def expressions():
    """Of all alerts, unquoted."""
    return {
        name: text.replace("''", "'")
        for name, text in re.findall(r"- alert: (\w+)\n +expr: '((?:[^']|'')+)'\n", RULES)
    }


def test_alerts_ask_for_metrics_and_labels_that_exist():
    assert len(expressions()) == RULES.count("- alert:") > 30
    for expression in expressions().values():
        check(expression)


def test_every_alert_says_how_bad_it_is_and_what_to_do():
    for alert in RULES.split("- alert: ")[1:]:
        assert re.search(r"labels: \{severity: (critical|warning|info)\}", alert), alert
        assert len(re.findall(r" (?:summary|description): '.{10,}", alert)) == 2, alert


def test_stories_are_about_alerts_that_exist():
    named = set(re.findall(r'alertname(?:: |=")(\w+)', STORIES))
    assert named
    assert named <= expressions().keys()


def test_the_shipped_scrape_configuration_has_jobs_that_the_alerts_look_for():
    text = (ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text("utf-8")
    jobs = re.findall(r"job_name: (\S+)", text)

    assert "federator" in jobs
    assert all(job.startswith("federator") for job in jobs)
    assert "alerts.yml" in text

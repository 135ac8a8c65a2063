"""Our own log: one event a line on standard error, in the form that was asked for."""

import contextlib
import json
import subprocess
import sys

import pytest
import structlog
from structlog.typing import EventDict

from federator.runtime.process import logs

PROGRAM = """
import logging, sys, structlog
from federator.runtime.process import logs
from federator.config.sections import LogSettings
logs.configure(LogSettings(format=sys.argv[1], level=sys.argv[2]))
log = structlog.get_logger()
log.debug("whisper")
log.info("said", filter="a/\\x1b[31m\\nb")
logging.getLogger("asyncio").error("from the library")
def divide(secret):
    return 1 / 0
try:
    divide("hu" + "sh")
except ZeroDivisionError:
    log.exception("failed")
"""


def written(form: str, level: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, form, level], capture_output=True, text=True, check=True
    )
    assert ran.stdout == ""
    return ran.stderr.splitlines()


def test_json_is_one_object_a_line_whatever_it_quotes():
    events = [json.loads(line) for line in written("json", "info")]

    assert [event["event"] for event in events] == ["said", "from the library", "failed"]
    assert events[0]["filter"] == "a/\x1b[31m\nb"
    assert events[2]["exception"][0]["exc_type"] == "ZeroDivisionError"
    assert all(event["timestamp"].endswith("Z") and event["level"] for event in events)


def test_less_than_the_level_is_not_written():
    assert [json.loads(line)["event"] for line in written("json", "error")] == [
        "from the library",
        "failed",
    ]
    assert json.loads(written("json", "debug")[0])["event"] == "whisper"


def test_the_console_form_cannot_be_forged_by_a_topic():
    lines = written("console", "info")

    assert "said" in lines[0]
    assert "\x1b[31m" not in lines[0]
    assert "from the library" in lines[1]


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_traceback_shows_no_values_of_variables(form):
    text = "\n".join(written(form, "info"))

    assert "ZeroDivisionError" in text
    assert "hush" not in text


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def passed(limit: logs.RateLimit, name: str, count: int) -> list[EventDict]:
    events = []
    for _ in range(count):
        with contextlib.suppress(structlog.DropEvent):
            events.append(limit(None, "warning", {"event": name}))
    return events


def test_a_flood_of_one_event_is_withheld_and_counted():
    clock = Clock()
    limit = logs.RateLimit(clock=clock)

    assert len(passed(limit, "flood", 10_000)) == logs.LINES_BURST
    assert len(passed(limit, "other", 1)) == 1
    clock.now_s += logs.LINE_EVERY_S
    assert passed(limit, "flood", 2) == [{"event": "flood", "withheld": 10_000 - logs.LINES_BURST}]


def test_a_sustained_flood_makes_less_than_a_line_a_second():
    clock = Clock()
    limit = logs.RateLimit(clock=clock)
    passed(limit, "flood", 1_000)

    lines = 0
    for _ in range(100):
        clock.now_s += 1
        lines += len(passed(limit, "flood", 100))

    assert lines == 100 / logs.LINE_EVERY_S


def test_endless_names_share_one_bucket():
    limit = logs.RateLimit(clock=Clock())

    lines = sum(len(passed(limit, f"name {n}", 1)) for n in range(10_000))

    assert lines == logs.NAMES_MAX + logs.LINES_BURST

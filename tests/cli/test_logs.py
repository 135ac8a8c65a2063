"""Our own log: one event a line on standard error, in the form that was asked for."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import logging, sys, structlog
from federator.cli import logs
from federator.config import LogSettings
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

"""docs/events.md names every event that the code can log, and no other."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
DAEMONS = ("collector", "console", "steer")
"""For each of them ``collector.sources`` logs under its name."""
SPEAKERS = {"Notice", "notice", "_notice", "_complain", "_tried", "on_error"}


def text_of(node):
    """A constant, or ``*.event`` for an f-string whose beginning varies."""
    if isinstance(node, ast.JoinedStr) and isinstance(node.values[-1], ast.Constant):
        end = node.values[-1].value
        return f"*{end}" if re.fullmatch(r"\.[a-z_]+", end) else None
    return node.value if isinstance(node, ast.Constant) else None


def logged(tree):
    """(event name, level or None) of every call that logs, or makes a notice to be logged."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        on = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if not (name in SPEAKERS or (name in LEVELS and on.endswith("_log"))):
            continue
        texts = [text_of(argument) for argument in call.args]
        names = [t for t in texts if isinstance(t, str) and re.fullmatch(r"[a-z*]+\.[a-z_]+", t)]
        level = next((t for t in texts if t in LEVELS), name if name in LEVELS - {"log"} else None)
        if names:
            for daemon in DAEMONS if names[0].startswith("*.") else ("",):
                yield names[0].replace("*", daemon), "error" if level == "exception" else level
        else:
            assert not [t for t in texts if isinstance(t, str)], ast.unparse(call)


def in_code():
    found = {}
    for path in (ROOT / "federator").rglob("*.py"):
        for name, level in logged(ast.parse(path.read_text())):
            found.setdefault(name, set()).add(level)
    return found


def in_docs():
    text = (ROOT / "docs" / "events.md").read_text()
    rows = re.findall(r"^\| `([a-z]+\.[a-z_]+)` \| ([a-z, ]+) \|", text, re.MULTILINE)
    assert len(dict(rows)) == len(rows), "an event is described twice"
    return {name: set(levels.split(", ")) for name, levels in rows}


def test_every_event_is_described_and_every_description_is_of_an_event():
    assert sorted(in_docs()) == sorted(in_code())


def test_described_levels_are_those_in_the_code():
    documented = in_docs()
    for name, levels in in_code().items():
        assert levels - {None} <= documented[name], name

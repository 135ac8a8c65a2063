"""docs/events.md names every event that the code can log, and no other."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
SPEAKERS = {"Notice", "_notice", "_complain", "_tried", "on_error"}


def logged(tree):
    """(event name, level or None) of every call that logs, or makes a notice to be logged."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        on = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if not (name in SPEAKERS or (name in LEVELS and on.endswith("_log"))):
            continue
        texts = [a.value for a in call.args if isinstance(a, ast.Constant)]
        names = [t for t in texts if isinstance(t, str) and re.fullmatch(r"[a-z]+\.[a-z_]+", t)]
        level = next((t for t in texts if t in LEVELS), name if name in LEVELS - {"log"} else None)
        if names:
            yield names[0], "error" if level == "exception" else level
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

"""Reading the log of a real agent."""

import json
from collections import Counter


def events(agent, *, since=0):
    """The lines of ``agent``'s log as objects, from the ``since``-th on."""
    lines = agent.log_path.read_text(encoding="utf-8").splitlines()[since:]
    return [json.loads(line) for line in lines]


def named(agent, name, *, since=0):
    """The lines of one event."""
    return [event for event in events(agent, since=since) if event["event"] == name]


def tally(agent, *, since=0):
    """How often each event was logged."""
    return Counter(event["event"] for event in events(agent, since=since))


def assert_calm(agent):
    """It runs, and nothing went wrong that it did not expect."""
    assert agent.running, agent.log_tail(30)
    assert "Traceback" not in agent.log_path.read_text(encoding="utf-8")
    assert not [event for event in events(agent) if "exception" in event]

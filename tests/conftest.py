"""For every test: hypothesis profiles, the order in which tests are started, and logs."""

import contextlib
import logging
import os
from collections import Counter
from pathlib import Path

import pytest
import structlog
from _pytest.nodeid import NodeId
from hypothesis import HealthCheck, settings

from lab.grid.processes.broker import MOSQUITTO
from tests.effort import PROFILE, SHARES

# No deadline: a time bound tighter than ten times the usual fails on a busy machine.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.register_profile("explore", deadline=None, max_examples=10_000)
for name, share in SHARES.items():
    settings.register_profile(name, settings.get_profile("default"), max_examples=100 // share)
settings.load_profile(PROFILE)

LONGEST = Path(__file__).with_name("longest.txt")
"""Seconds and name of each test that takes some: what starts last is waited for at the end. Of what
shares a fixture one test stands for all."""

# Linux shares processors among sessions: every broker and agent that a test starts has one of its
# own, and all workers together would be one more. Each test's clients are to count as a process.
if "PYTEST_XDIST_WORKER" in os.environ:
    with contextlib.suppress(PermissionError):
        os.setsid()
    # Within a session only: the session itself has to be told how nice it is, too.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(os.nice(0)))

# Pages that call mosquitto, and mosquitto_passwd and its like, get those of the broker under test.
if chosen := os.environ.get(MOSQUITTO):
    os.environ["PATH"] = f"{Path(chosen).parent}:{os.environ.get('PATH', os.defpath)}"

# These want a Docker engine, a bare system or helm: they are those of script/test-containers,
# script/test-bare and script/test-helm, which say so where it is missing.
collect_ignore = [
    folder
    for folder, asked in (
        ("containers", "FEDERATOR_TEST_CONTAINERS"),
        ("bare", "FEDERATOR_TEST_BARE"),
        ("helm", "FEDERATOR_TEST_HELM"),
    )
    if not os.environ.get(asked)
]


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marks
def pytest_collection_modifyitems(items):
    """Leave most parameters to ``--full``, and start the longest first.

    What shares a fixture of its module stays on one worker.

    ``--dist loadgroup`` finds a group behind the ``@`` of a test's id. xdist 3.8 writes it there
    for ``pytest.mark.xdist_group``, but where pytest 9.2 does not look, so we do.
    """
    runs = Counter()
    for item in items:
        if few := item.get_closest_marker("few"):
            runs[item.location[0], item.originalname] += 1
            if runs[item.location[0], item.originalname] > few.args[0]:
                item.add_marker("full")
    lines = (line.split() for line in LONGEST.read_text().splitlines())
    seconds = {name: float(took) for took, name in lines}
    items.sort(key=lambda item: -seconds.get(getattr(item, "originalname", item.name), 0.0))
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs.values()
        if any(found[-1].scope == "module" for found in fixtures):
            item._id = NodeId.parse(f"{item.nodeid}@{item.location[0]}")


@pytest.fixture(autouse=True)
def logs_of_one_test_are_not_the_nexts():
    """A verb that runs in the test's own process sends the log to that test's standard error."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)

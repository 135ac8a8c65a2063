"""For every test: hypothesis profiles that do not depend on how busy the machine is, and logs."""

import contextlib
import logging
import os

import pytest
import structlog
from hypothesis import HealthCheck, settings

# No deadline: a time bound tighter than ten times the usual fails on a busy machine.
settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.register_profile("explore", deadline=None, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Linux shares processors among sessions: every broker and agent that a test starts has one of its
# own, and all workers together would be one more. Each test's clients are to count as a process.
if "PYTEST_XDIST_WORKER" in os.environ:
    with contextlib.suppress(PermissionError):
        os.setsid()

# These want a Docker engine, and minutes: they are script/test-containers', which says so.
collect_ignore = [] if os.environ.get("FEDERATOR_TEST_CONTAINERS") else ["containers"]


@pytest.fixture(autouse=True)
def logs_of_one_test_are_not_the_nexts():
    """A verb that runs in the test's own process sends the log to that test's standard error."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)

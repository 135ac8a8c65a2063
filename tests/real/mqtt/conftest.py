"""Every test here runs on both event loops."""

from tests.both_loops import pytest_asyncio_loop_factories  # noqa: F401

"""For a folder's conftest: its tests run on both event loops.

The daemon runs on uvloop where there is one, and on asyncio's own loop on 32-bit gateways.
"""

import asyncio

import uvloop


def pytest_asyncio_loop_factories(config, item):
    """The loops of pytest-asyncio's tests."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

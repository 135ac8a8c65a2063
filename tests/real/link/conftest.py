"""Every test of the link runs on both event loops: 32-bit gateways have no uvloop."""

import asyncio

import uvloop


def pytest_asyncio_loop_factories(config, item):
    """The loops of pytest-asyncio's tests in this folder."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

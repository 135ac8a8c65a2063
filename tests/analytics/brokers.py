"""Real Mosquittos for tests that wait for Spark and so cannot run in an event loop."""

import asyncio
import contextlib

from lab.grid.processes.broker import BrokerProcess


@contextlib.contextmanager
def brokers(folder, count=1, **options):
    """``count`` of them, stopped at the end."""
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()

        async def start():
            found = [BrokerProcess(folder / f"broker-{n}", **options) for n in range(count)]
            return [await stack.enter_async_context(broker) for broker in found]

        try:
            yield runner.run(start())
        finally:
            runner.run(stack.aclose())

"""Retained values reach whoever subscribed before its agent listened. docs/guarantees.md."""

import asyncio
import itertools
import time

import pytest

from tests.real.plain_agents import DEEP, eventually, linked
from tests.real.polling import until
from tests.real.retained.retained_clients import Retaining, client

DEVICES = 250
ORDERS = list(itertools.permutations(("broker", "agent", "home-assistant")))


class HomeAssistant:
    """A client that each time it starts wants other topics than before, and more of them."""

    def __init__(self, broker):
        self.broker = broker
        self.starts = 0

    async def start(self):
        self.starts += 1
        filters = [f"discovery-{self.starts}/#"]
        filters += [f"zigbee2mqtt/{self.starts}/{number}" for number in range(self.starts)]
        self.client = Retaining(self.broker.port, "home-assistant", *filters)
        self._task = asyncio.create_task(self.client.link.run())

    async def stop(self):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def has_all(self):
        return len(self.client.latest) == DEVICES


@pytest.mark.slow
async def test_home_assistant_has_all_devices_whatever_restarts_first(plain, record_property):
    near, far = [await plain.broker(extra_config=DEEP) for _ in range(2)]  # counted every 10 s
    await plain.agent(2, far)
    here = await plain.agent(1, near, far.url)
    home_assistant = HomeAssistant(near)
    parts = {"home-assistant": home_assistant, "agent": here, "broker": near}
    async with client(far, "zigbee2mqtt") as devices:
        for start in range(1, 2 + len(ORDERS)):
            for number in range(DEVICES):
                devices.send(f"discovery-{start}/light/{number}/config", b'{"name":"lamp"}')
            await until(lambda: devices.link.unacknowledged < 20, "the broker keeps up")
        await until(lambda: not devices.link.unacknowledged, "the devices are known there")
        await eventually(here, linked(2), "linked")
        await home_assistant.start()
        await until(home_assistant.has_all, "it has all at first")

        for order in ORDERS:
            for part in parts.values():
                await part.stop()
            for name in order:
                if name == "agent" and order[-1] == name:
                    await until(lambda: home_assistant.client.link.subscribed, "it came first")
                await parts[name].start()
            since_s = time.monotonic()
            await until(home_assistant.has_all, f"all devices after {order}")
            record_property(" ".join(order), round(time.monotonic() - since_s, 1))
        await home_assistant.stop()

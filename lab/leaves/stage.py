"""Brokers and agents of hubs and leaves as real processes, and clients at them.

Source: docs/hubs.md.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Final

from mqtt5 import QoS, TopicFilter

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import Endpoint, LinkObserver, MqttLink
from lab.grid.processes.agent import AgentConfig, AgentProcess
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.children import spawn
from lab.grid.streams import running

READY_S: Final = 300.0
POLL_S: Final = 1.0
BROKER_LINES: Final = ("max_queued_messages 0", "sys_interval 1")


class Silent(LinkObserver):
    """Takes what comes, and does nothing about it."""


class Stage(contextlib.AsyncExitStack):
    """What was started in ``folder``, and ends with this."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    async def broker(self, name: str) -> BrokerProcess:
        place = self._folder / f"{name}-broker"
        return await self.enter_async_context(BrokerProcess(place, extra_config=BROKER_LINES))

    async def agent(self, name: str, config: AgentConfig) -> AgentProcess:
        return await self.enter_async_context(AgentProcess(self._folder / name, config, spawn))

    async def leaf(
        self, id: BrokerId, hub: BrokerId, url: str
    ) -> tuple[BrokerProcess, AgentProcess]:
        broker = await self.broker(f"leaf-{id}")
        config = AgentConfig(id, url_of(broker), {hub: url}, role="leaf")
        return broker, await self.agent(f"leaf-{id}", config)

    async def client(self, broker: BrokerProcess, client_id: str) -> MqttLink:
        """A connected client, for as long as this lasts."""
        endpoint = Endpoint("127.0.0.1", broker.port)
        link = MqttLink(endpoint, Silent(), client_id=client_id)
        await self.run(link.run())
        return link

    async def run(self, work: Coroutine[None, None, None]) -> None:
        """Do ``work`` until this ends."""
        await self.enter_async_context(running(work))


def url_of(broker: BrokerProcess) -> str:
    """Where a broker is reached."""
    return f"mqtt://127.0.0.1:{broker.port}"


def wanted(filters: Iterable[str]) -> list[TopicFilter]:
    """The filters as a client asks for them."""
    return [TopicFilter(each, max_qos=QoS.AT_LEAST_ONCE) for each in filters]


async def told(
    agent: AgentProcess,
    holds: Callable[[dict[str, Any]], bool],
    what: str,
    *,
    within_s: float = READY_S,
) -> None:
    """Wait until an agent's ``/status`` is as it should be.

    Raises ``LinkError``: ``what`` was to come never did.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + within_s
    while loop.time() < end_s:
        if holds(await agent.status()):
            return
        await asyncio.sleep(POLL_S)
    raise LinkError(f"{what}: not within {within_s:.0f} s")

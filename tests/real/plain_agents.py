"""Agents configured as an operator would: neighbours by URL, with or without an id."""

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field

from federator.errors import LinkError
from lab.grid.processes.agent import AgentProcess
from lab.grid.processes.broker import BrokerProcess
from tests.real.agent_log import assert_calm
from tests.real.polling import ASK_S, DEADLINE_S, until

QUICK = ("sys_interval 1",)
"""For brokers: subscriptions are counted every second, not every tenth."""

DEEP = ("max_queued_messages 0",)
"""For brokers: nothing is dropped for a client or an agent that a busy machine keeps waiting."""


@dataclass
class PlainConfig:
    """What ``AgentProcess`` wants of a configuration.

    ``neighbours`` are URLs, or (URL, id), or those and a line of TOML.
    """

    id: int
    broker_url: str
    neighbours: tuple[str | tuple[str, int] | tuple[str, int, str], ...] = ()
    broker: dict[str, object] = field(default_factory=dict)
    links: dict[str, object] = field(default_factory=dict)
    more: str = ""  # TOML of further sections
    share: dict[str, object] = field(default_factory=dict)
    security: str = "open"
    role: str = "member"
    top: str = ""  # TOML before the first section

    def toml(self, state_dir):
        def keys(section):
            return [f"{key} = {json.dumps(value)}" for key, value in section.items()]

        lines = [f"state_dir = {json.dumps(str(state_dir))}", f'security = "{self.security}"']
        lines += [f'role = "{self.role}"', self.top]
        lines += ["[broker]", f"id = {self.id}"]
        lines += [f"url = {json.dumps(self.broker_url)}", *keys(self.broker)]
        for neighbour in self.neighbours:
            url, id_, *more = neighbour if isinstance(neighbour, tuple) else (neighbour, None)
            lines += ["[[neighbours]]", f"url = {json.dumps(url)}"]
            lines += [f"id = {id_}", *more] if id_ is not None else []
        lines += ["[links]", *keys(self.links), "[share]", *keys(self.share)]
        lines += ["[http]", "port = 0", "[log]", 'format = "json"']
        return "\n".join([*lines, self.more, ""])


class Plain:
    """Brokers and agents, ended in the right order; a context manager."""

    def __init__(self, folder):
        self.folder = folder
        self.agents = []
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        for agent in self.agents:
            await agent.stop()
        await self._stack.aclose()
        if error[0] is None:
            for agent in self.agents:
                assert "Traceback" not in agent.log_path.read_text()

    async def broker(self, **options):
        folder = self.folder / f"broker-{time.monotonic_ns()}"
        options.setdefault("extra_config", (*QUICK, *DEEP))
        return await self._stack.enter_async_context(BrokerProcess(folder, **options))

    async def agent(self, id, at, *neighbours, **sections):
        url = at if isinstance(at, str) else at.url
        folder = self.folder / f"agent-{id}-{len(self.agents)}"
        agent = AgentProcess(folder, PlainConfig(id, url, neighbours, **sections))
        self.agents.append(agent)
        await agent.start()
        return agent

    def assert_calm(self):
        for agent in self.agents:
            assert_calm(agent)


async def eventually(agent, wanted, what, *, deadline_s=DEADLINE_S):
    """The status of ``agent`` once ``wanted`` finds it right."""
    found = {}

    end_s = time.monotonic() + deadline_s
    while True:
        with contextlib.suppress(LinkError):
            found = await agent.status()
            if wanted(found):
                return found
        assert time.monotonic() < end_s, f"not within {deadline_s} s: {what}: {found}"
        await asyncio.sleep(ASK_S)


def linked(*ids):
    """Whether there are live links to exactly the brokers ``ids``."""
    return lambda status: (
        status["ready"]
        and not status["discovery"]["widened"]
        and sorted(k["neighbour"] for k in status["links"] if k["state"] == "up") == sorted(ids)
    )


async def gets_through(publisher, *subscribers):
    """Wait until what is published from now on arrives at all ``subscribers``."""
    for subscriber in subscribers:
        number = publisher.sent
        await until(
            lambda s=subscriber, n=number: any(came >= n for came in list(s.came)[-50:]),
            "publications arrive",
        )


async def settled(publisher, *subscribers):
    """Wait until nothing that is published is missing; the number from which on that holds.

    The first to arrive may have come by a subscription that is leaving: an agent that was just
    trusted had asked for everything. So one that was published behind it must arrive, too.
    """
    await gets_through(publisher, *subscribers)
    await gets_through(publisher, *subscribers)
    return publisher.sent

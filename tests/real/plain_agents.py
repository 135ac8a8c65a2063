"""Agents configured as an operator would: neighbours by URL, with or without an id."""

import contextlib
import time
from dataclasses import dataclass, field

from federator.errors import LinkError
from lab.grid.processes.agent import AgentProcess
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.children import toml, toml_sections
from tests.real.agent_log import assert_calm
from tests.real.polling import DEADLINE_S, until

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
        top = {"state_dir": str(state_dir), "security": self.security, "role": self.role}
        lines = [*toml(top), self.top]
        lines += toml({"id": self.id, "url": self.broker_url, **self.broker}, header="[broker]")
        for neighbour in self.neighbours:
            url, *more = (neighbour,) if isinstance(neighbour, str) else neighbour
            lines += toml({"url": url}, header="[[neighbours]]")
            lines += [f"id = {more[0]}", *more[1:]] if more else []
        sections = {"links": self.links, "share": self.share, "http": {"port": 0}}
        lines += toml_sections(sections, {"log": {"format": "json"}})
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


async def eventually(agent, wanted, what, *, path=None, deadline_s=DEADLINE_S):
    """The status, or another page, of ``agent`` once ``wanted`` finds it right."""
    found = {}

    async def right():
        nonlocal found
        with contextlib.suppress(LinkError):
            found = await (agent.page(path) if path else agent.status())
            return found if wanted(found) else None

    return await until(right, lambda: f"{what}: {found}", deadline_s=deadline_s)


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

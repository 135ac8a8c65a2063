"""Brokers 1, 2 and 3 in a line, their agents, and gateways in front of them."""

import contextlib

from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from tests.real.plain_agents import Plain, eventually, linked
from tests.real.polling import until


class Stage:
    """Attributes: ``brokers`` and ``agents`` by id; ``gateways`` by name, once started."""

    def __init__(self, folder, brokers, agents, stack):
        self.brokers = brokers
        self.agents = agents
        self.gateways = {}
        self._folder = folder
        self._stack = stack

    async def gateway(self, name="gate", *, home=None, assign=(), brokers=(1, 2, 3), **more):
        """A gateway that attaches clients as ``assign`` says, or all to ``home``."""
        urls = {id_: self.brokers[id_].url for id_ in brokers}
        sections = {"attachment": {"assign": [*assign] or [f"*={home}"]}, **more}
        config = GatewayConfig(name, urls, federation="fed", more=sections)
        process = GatewayProcess(self._folder / name, config)
        self.gateways[name] = await self._stack.enter_async_context(process)
        await reaches_all(process)
        return process


async def reaches_all(gateway):
    """Wait until no client is attached elsewhere for want of its broker."""

    async def all_up():
        return all(each["up"] for each in (await gateway.status())["brokers"])

    await until(all_up, "the gateway reaches all brokers")


@contextlib.asynccontextmanager
async def standing(tmp_path):
    """The stage, its files in ``tmp_path``; no gateway may have met a bug when it ends."""
    async with Plain(tmp_path) as plain, contextlib.AsyncExitStack() as stack:
        brokers = {id_: await plain.broker() for id_ in (1, 2, 3)}
        agents = {1: await plain.agent(1, brokers[1])}
        for id_ in (2, 3):
            agents[id_] = await plain.agent(id_, brokers[id_], brokers[id_ - 1].url)
        await eventually(agents[2], linked(1, 3), "links")
        made = Stage(tmp_path, brokers, agents, stack)
        yield made
        await stack.aclose()
        for gateway in made.gateways.values():
            assert "Traceback" not in gateway.log_path.read_text()

"""Two agents, each with its broker, whose frames go past the brokers over roads that fail."""

from tests.real.plain_agents import eventually, linked
from tests.real.streams import stream
from tests.real.trust.test_signed import Office


class TransportPair:
    """``roads[i]`` leads straight to agent i.

    Args:
        transport: Of ``links.transport``.
        section: Its section of the configuration, and
        key: of the status.
    """

    def __init__(self, plain, folder, *, transport, section, key):
        self.plain, self.office = plain, Office(folder / "office")
        self.transport, self.section, self.key = transport, section, key
        self.roads, self.brokers, self.agents = [], [], []

    async def start(
        self,
        make_road,
        *,
        security="signed",
        second=None,  # another transport of the second agent
        advertised=None,  # what that says of itself, instead of its road
        named="",  # what it says of its neighbour
        lines=(),  # more of the transport's section
    ):
        for i, transport in enumerate((self.transport, second or self.transport)):
            road = await make_road(i)
            self.roads.append(road)
            self.brokers.append(await self.plain.broker())
            place = advertised if i and advertised else f"127.0.0.1:{road.port}"
            more = [f"[{self.section}]", 'listen = "127.0.0.1:0"', f'advertise = "{place}"', *lines]
            more += [self.office.section(i + 1)] if security != "open" else []
            first = (self.brokers[0].url, 1, named) if named else self.brokers[0].url
            agent = await self.plain.agent(
                i + 1,
                self.brokers[i],
                *([first] if i else []),
                security=security,
                links={"transport": transport},
                more="\n".join(more),
            )
            self.agents.append(agent)
            if transport == self.transport:
                self.reach(road, (await agent.status())[self.key]["port"])
        await eventually(self.agents[0], linked(2), "linked")
        return self

    def reach(self, road, port):
        """Let ``road`` lead to a port of this host."""
        road.target = port

    async def used(self):
        for agent in self.agents:
            await eventually(agent, self.is_used, "frames go past the brokers")
        return self

    async def left(self):
        await eventually(self.agents[0], lambda s: not self.is_used(s), "it is given up")

    def link(self, status):
        return status["links"][0][self.key]

    def is_used(self, status):
        return bool(self.link(status)) and self.link(status)["used"]

    def stream(self, *, qos=0, rate_hz=300):
        """A publisher at the first broker, and a subscriber at the second."""
        return stream(*self.brokers, "a/b", "a/#", qos=qos, rate_hz=rate_hz)

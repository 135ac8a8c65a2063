"""A transport is one class and a name: a pipe inside this process is one, and all know it."""

import asyncio
from dataclasses import replace

import pytest

from federator.config.settings import Settings
from federator.config.validation import validated
from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding.publications import packets_in
from federator.protocol.types import BrokerId
from federator.runtime.agent import transports
from federator.runtime.agent.agent import Agent
from federator.runtime.mqtt.wire import inbound_of
from federator.runtime.storage.state_dir import StateDir
from lab.sim.data import LocalLink, packet_of

N1, N2 = BrokerId(1), BrokerId(2)


ENDS: dict[BrokerId, "Pipe"] = {}


class Pipe:
    """Hands frames to the other agent at once, while it is open."""

    name = section = "pipe"
    waiting_bytes = queued_bytes = urgent_bytes = 0
    idle, stint = True, (0, 0)

    def __init__(self, needs):
        self.id, self.take = needs.settings.broker_id, needs.on_frames
        self.neighbours, self.bytes, self.open, self.left = set(), 0, True, False
        self.messages = {}
        ENDS[self.id] = self

    async def run(self):
        await asyncio.Event().wait()

    def on_neighbour(self, neighbour, up):
        (self.neighbours.add if up else self.neighbours.discard)(neighbour)

    def carries(self, neighbour):
        return self.open and neighbour in self.neighbours

    def send(self, neighbour, content, size, *, urgent):
        if not self.carries(neighbour):
            return None
        self.bytes += size
        ENDS[neighbour].take([b"".join(content)], None)
        return size

    def queue_to(self, neighbour):
        return self if self.carries(neighbour) else None

    def bytes_to(self, neighbour):
        return self.bytes

    def snapshot(self, neighbour):
        return {"used": self.carries(neighbour)}

    def totals(self):
        return {"bytes": self.bytes}

    def leave(self):
        self.left, self.open = True, False


class Broker:
    """The connection to a neighbour's broker."""

    room = idle = True
    urgent_bytes = unacknowledged = waiting = 0
    packet_bytes_max = packet_bytes_sure = 1 << 28

    def __init__(self):
        self.came = []

    def write_packets(self, parts, count, *, urgent=False):
        self.came += packets_in(b"".join(parts))
        return True


@pytest.fixture
async def world(tmp_path, monkeypatch):
    """Two agents with a pipe between them, the second's clients, and the second's broker."""
    monkeypatch.setitem(transports.MAKERS, "pipe", Pipe)
    agents, arrived, broker = {}, [], Broker()
    async with asyncio.TaskGroup() as tasks:
        for id in (N1, N2):
            config = {"security": "open", "broker": {"id": id, "url": "mqtt://127.0.0.1:1"}}
            settings = validated(Settings, config | {"state_dir": str(tmp_path / str(id))})
            settings = replace(settings, links=replace(settings.links, transport="pipe"))
            with StateDir(settings.state_dir) as state:
                agents[id] = Agent(settings, state, tasks)
        for id, other in ((N1, N2), (N2, N1)):
            data = agents[id].data
            data.path.delivery.publish_over(LocalLink(arrived.append if id == N2 else print))
            data.path.reach(other, broker)
            data.transports.on_neighbour(other, True)
        agents[N1].data.path.set_route("a/#", FilterRoute(False, True, (N2,)))
        agents[N2].data.path.set_route("a/#", FilterRoute(True, False, (N1,)))
        yield agents, arrived, broker


def publish(agent, number):
    run = packet_of("a/b", number, 0)
    agent.data.path.on_publishes(memoryview(run), inbound_of(run))


async def test_frames_pass_the_pipe_and_the_broker_when_it_is_closed(world):
    agents, arrived, broker = world
    publish(agents[N1], 1)
    assert (len(arrived), broker.came) == (1, [])

    ENDS[N1].open = False
    publish(agents[N1], 2)

    assert len(arrived) == 1
    assert [packet.topic for packet in broker.came] == [agents[N1].data.path.data_topic]


async def test_traces_loads_and_pages_name_the_pipe(world):
    agents, _, _ = world
    data, services = agents[N1].data, agents[N1].services
    publish(agents[N1], 1)

    assert data.tracing._transports(((N2, b"\1"),)) == ["pipe"]
    assert services.link_loads.transports.bytes_to(N2) == ENDS[N1].bytes > 0
    assert data.transports.snapshots(N2) == {"pipe": {"used": True}}
    assert any("pipe" in part.tasks for part in agents[N1].parts)


async def test_an_agent_that_leaves_tells_its_pipe(world):
    agents, _, _ = world

    await agents[N1].leave()

    assert ENDS[N1].left

"""What stands on the brokers about agents: their health, and one digit per link as of a bridge."""

import json

from tests.real.agent_log import named
from tests.real.client import Client
from tests.real.flow import running
from tests.real.plain_agents import eventually, linked
from tests.real.polling import until

STATE = "$SYS/broker/connection/federator-{}/state"


class Monitor(Client):
    """What is retained about agents on one broker, and what changes: by topic, the last payload."""

    def __init__(self, port):
        filters = ("$fed/fed/health", "$SYS/broker/connection/+/state")
        super().__init__(port, "monitor", *filters, qos=0)

    def health(self):
        return json.loads(self.last.get("$fed/fed/health", b"{}"))

    def state(self, broker):
        return self.last.get(STATE.format(broker))


async def pair(plain, **options):
    brokers = [await plain.broker() for _ in range(2)]
    agents = [
        await plain.agent(id, brokers[id - 1], brokers[2 - id].url, **options) for id in (1, 2)
    ]
    for agent, other in zip(agents, (2, 1), strict=True):
        await eventually(agent, linked(other), "linked")
    return brokers, agents


async def test_brokers_tell_the_health_of_agents_and_their_death(plain):
    brokers, agents = await pair(plain, broker={"name": "hall"})
    one, two = (Monitor(broker.port) for broker in brokers)

    async with running(one, two):
        for monitor, id, other in ((one, 1, "2"), (two, 2, "1")):
            await until(
                lambda m=monitor, o=other: m.health().get("links") == {o: "up"}, "the link is told"
            )
            assert monitor.health()["state"] == "ready"
            assert (monitor.health()["broker"], monitor.health()["name"]) == (id, "hall")
            await until(
                lambda m=monitor, o=other: m.health()["names"] == {o: "hall"},
                "neighbours are named",
            )
        await until(
            lambda: (one.state(2), two.state(1)) == (b"1", b"1"),
            "beside a bridge it would say the same",
        )

        agents[1].kill9()

        await until(lambda: two.health()["state"] == "down", "its Will")
        await until(lambda: one.state(2) == b"0", "its other Will")
        await until(lambda: one.health()["links"] == {"2": "down"}, "who is left says so")
        await until(lambda: two.state(1) == b"0", "also there")

        await agents[1].start()

        await until(lambda: two.health()["state"] == "ready", "back")
        await until(lambda: (one.state(2), two.state(1)) == (b"1", b"1"), "and linked")

        await agents[1].stop()

        await until(lambda: two.health()["state"] == "down", "it said so")
        assert (two.health()["reason"], two.health()["name"]) == ("it was stopped", "hall")
        await until(lambda: one.state(2) == b"0", "and there")

    assert not any(named(agent, "bridge.found") for agent in agents)
    assert named(agents[0], "link.down")[0]["neighbour_name"] == "hall"


async def test_links_keep_quiet_where_they_are_told_to(plain):
    brokers, _ = await pair(plain, links={"notifications": False})
    monitor = Monitor(brokers[0].port)

    async with running(monitor):
        await until(lambda: monitor.health().get("links") == {"2": "up"}, "it works")
        assert monitor.state(2) is None

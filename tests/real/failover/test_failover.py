"""Brokers that die under real clients: the controller, prepared sessions, drain."""

from functools import partial

import pytest

from federator.protocol.messages import guide as g
from federator.protocol.messages import json_codec
from tests.real.client import Client
from tests.real.flow import Publisher, Subscriber, running
from tests.real.gateway.nomad import Nomad
from tests.real.observability.test_cli_agent import ran
from tests.real.plain_agents import eventually, linked
from tests.real.polling import until, until_none

PREPARE = "[failover]\nprepare_sessions = true\n"


async def triangle(plain, more=PREPARE):
    """Brokers 1, 2 and 3, all linked, and their agents."""
    brokers = {id: await plain.broker() for id in (1, 2, 3)}
    agents = {}
    for id, broker in brokers.items():
        others = [brokers[n].url for n in brokers if n < id]
        agents[id] = await plain.agent(id, broker, *others, more=more)
    for id, agent in agents.items():
        await eventually(agent, linked(*(set(brokers) - {id})), "all are linked")
    return brokers, agents


page = partial(eventually, path="/controller")
"""The controller page of an agent once it is right."""


def knows(client, *brokers):
    """Whether each of ``brokers`` is known to keep a session of ``client``."""
    return lambda p: (
        set(brokers)
        <= {
            row["broker"]
            for row in p["table"]
            if row["client"] == client and row["session"] == "kept"
        }
    )


SUBSTITUTE = 1


async def regulars(brokers):
    """Two clients with sessions on brokers 1 and 2, which makes these alike.

    Without them 1 and 3 would be as good for 2, but for a load that is never quite the same.
    """
    for name in ("ada", "ben"):
        regular = Nomad(name, "home/+")
        for id in (SUBSTITUTE, 2):
            await regular.go(brokers[id].port)
        regular.leave()


def planned(client):
    """Whether its session on 2 is known, and who would step in."""

    def wanted(p):
        (of_2,) = (b["substitutes"] for b in p["brokers"] if b["broker"] == 2)
        return knows(client, 2)(p) and of_2[:1] == [SUBSTITUTE]

    return wanted


def prepared_by(agents):
    return [id for id, agent in agents.items() if sessions_prepared(agent)]


def sessions_prepared(agent):
    return "failover.sessions_prepared" in agent.log_path.read_text()


@pytest.mark.parametrize("protocol", [4, 5])
@pytest.mark.parametrize("in_a_hurry", [False, True])
@pytest.mark.few(2)
async def test_a_client_with_a_session_finds_at_the_substitute_all_since_the_kill(
    plain, protocol, in_a_hurry
):
    """Publishers on both brokers that live on; somebody on each wants the same already."""
    brokers, agents = await triangle(plain)
    nomad = Nomad("nomad", "s/+", protocol=protocol)
    publishers = {n: Publisher(brokers[n].port, f"s/{n}", client_id=f"p{n}", qos=1) for n in (1, 3)}
    for n, publisher in publishers.items():
        publisher.payload = lambda number, n=n: b"%d" % (n * 1_000_000 + number)
    others = [Subscriber(brokers[n].port, "s/#", client_id=f"o{n}", qos=1) for n in (1, 3)]
    await regulars(brokers)
    await nomad.go(brokers[2].port)

    async with running(*publishers.values(), *others):
        await page(agents[1], planned("nomad"), "the session is known")
        await until(lambda: len({n // 1_000_000 for n in nomad.numbers()}) == 2, "both arrive")
        brokers[2].kill9()
        since = {n: n * 1_000_000 + publishers[n].sent for n in publishers}
        if not in_a_hurry:
            await until(lambda: sessions_prepared(agents[SUBSTITUTE]), "the session is prepared")
        await nomad.go(brokers[SUBSTITUTE].port)
        assert nomad.session_present or in_a_hurry
        until_ = {n: publishers[n].sent for n in publishers}
        await until(
            lambda: all(publishers[n].sent > until_[n] + 100 for n in publishers), "traffic goes on"
        )
        for publisher in publishers.values():
            publisher.pause()
        wanted = {
            number
            for n, publisher in publishers.items()
            for number in range(since[n], n * 1_000_000 + publisher.sent)
        }
        await until_none(lambda: sorted(wanted - nomad.numbers()), f"since the kill, {since}")
        await until(lambda: sessions_prepared(agents[SUBSTITUTE]), "it stepped in")
    nomad.leave()


async def test_without_the_right_nothing_is_prepared(plain):
    brokers, agents = await triangle(plain, more="")
    nomad = Nomad("nomad", "s/+")
    await regulars(brokers)
    await nomad.go(brokers[2].port)
    await page(agents[1], planned("nomad"), "the session is known")

    brokers[2].kill9()
    await page(agents[1], lambda p: p["takeovers"], "there is a takeover")
    await nomad.go(brokers[SUBSTITUTE].port)

    assert not nomad.session_present
    assert not sessions_prepared(agents[SUBSTITUTE])
    nomad.leave()


@pytest.mark.parametrize("heard", [True, False])
async def test_a_prepared_session_ends_when_its_client_goes_back(plain, heard):
    """Also where it is faster than the agent there, who must tell from a count that it came."""
    brokers, agents = await triangle(plain)
    nomad = Nomad("nomad", "s/+")
    await nomad.go(brokers[2].port)
    await page(agents[1], knows("nomad", 2), "the session is known")
    brokers[2].kill9()
    await until(lambda: prepared_by(agents), "the session is prepared")
    (substitute,) = prepared_by(agents)
    await page(agents[1], knows("nomad", substitute), "it is at the substitute")
    nomad.leave()

    if not heard:
        agents[2].pause()
    await brokers[2].restart()
    if not heard:
        await nomad.go(brokers[2].port)
        agents[2].resume()
    await eventually(agents[2], linked(1, 3), "its agent hears the log again, and the counts agree")
    await nomad.go(brokers[2].port)

    await page(agents[1], lambda p: not knows("nomad", substitute)(p), "it is ended there")
    await page(agents[1], lambda p: not p["takeovers"], "nobody is taken over")
    nomad.leave()


class Reader(Client):
    """Reads the guide of one broker."""

    def __init__(self, port):
        super().__init__(port, f"reader-{port}", "$fed/fed/guide", qos=0)

    @property
    def guides(self):
        return [json_codec.decode(g.Guide, payload) for _, payload in self.came]


async def test_the_guide_tells_of_the_controllers_death_and_of_an_agents(plain):
    brokers, agents = await triangle(plain)
    reader = Reader(brokers[3].port)
    async with running(reader):
        await until(
            lambda: reader.guides and all(b.substitutes for b in reader.guides[-1].brokers),
            "the guide is whole",
        )
        assert reader.guides[-1].controller == 1

        brokers[1].kill9()
        await until(
            lambda: [(t.broker, t.substitute) for t in reader.guides[-1].takeovers] == [(1, 2)],
            "broker 2 steps in",
        )
        assert reader.guides[-1].controller == 2
        agents[3].kill9()

        await until(
            lambda: [(b.id, b.state) for b in reader.guides[-1].brokers] == [(3, "gone")],
            "its broker says that nobody keeps the guide",
        )
        await agents[3].start()
        await until(lambda: reader.guides[-1].controller == 2, "the guide is kept again")


async def test_an_operator_drains_a_broker_through_any_agent_and_it_outlasts_a_restart(plain):
    _, agents = await triangle(plain, more="")
    await page(agents[1], lambda p: all(b["substitutes"] for b in p["brokers"]), "all is planned")

    code, out, err = await ran("drain", "2", "-c", str(agents[3].config_path))
    assert (code, err) == (0, ""), (out, err)
    told = await page(agents[1], lambda p: p["takeovers"], "there is a takeover")
    assert [t["broker"] for t in told["takeovers"]] == [2]
    await agents[2].restart()
    await eventually(agents[2], linked(1, 3), "it is back")

    code, out, err = await ran("controller", "status", "-c", str(agents[3].config_path))
    assert code == 0, err
    assert "draining" in out
    code, out, err = await ran("undrain", "2", "-c", str(agents[1].config_path))
    assert code == 0, err
    await page(agents[3], lambda p: not p["takeovers"], "nobody is taken over")

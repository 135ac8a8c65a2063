"""What operators get wrong, with real agents: one clear line each, and the others go on.

Two agents with one id, a clock set back, an unreachable broker, and files that are wrong.
"""

import asyncio
import contextlib
import os
import shutil

import pytest

from federator.runtime.storage import damage
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.ports import free_ports
from tests.real.agent_log import named, tally
from tests.real.flow import Publisher, Subscriber, running
from tests.real.logins import write_passwords, write_secret
from tests.real.observability.test_cli_agent import ran
from tests.real.plain_agents import QUICK, PlainConfig, eventually, gets_through, linked
from tests.real.polling import until

FUTURE_MS = 4_000_000_000_000  # an epoch of the year 2096


@contextlib.asynccontextmanager
async def undisturbed(here, there):
    """A stream between two brokers that loses and doubles nothing while the block runs."""
    subscriber = Subscriber(there.port, "plant/#", client_id="sub")
    publisher = Publisher(here.port, "plant/1", client_id="pub")
    async with running(subscriber, publisher):
        await gets_through(publisher, subscriber)
        first = publisher.sent
        yield
        last = publisher.sent
        await gets_through(publisher, subscriber)

    assert {*range(first, last)} <= set(subscriber.came)
    assert subscriber.duplicates == 0


async def test_two_neighbours_with_one_id_are_named_once_and_the_first_stays(plain):
    one, two, three, four = [await plain.broker() for _ in range(4)]
    middle = await plain.agent(2, two, one.url, four.url)
    await plain.agent(1, one, two.url)
    await plain.agent(4, four, two.url)
    await eventually(middle, linked(1, 4), "the honest ones are linked")
    async with undisturbed(one, four):
        double = await plain.agent(1, three, two.url)
        await until(lambda: named(middle, "neighbour.id_conflict"), "the conflict is named")
        await asyncio.sleep(3)  # three more hellos

    assert linked(1, 4)(await middle.status())
    (line,) = named(middle, "neighbour.id_conflict")
    assert (line["neighbour"], line["address"]) == (1, three.url)
    assert double.running
    plain.assert_calm()


async def test_one_id_at_both_ends_of_a_line_is_told_and_the_middle_goes_on(plain):
    brokers = [await plain.broker() for _ in range(4)]
    ids = (1, 2, 3, 1)
    agents = [
        await plain.agent(ids[n], brokers[n], *(b.url for b in brokers[max(0, n - 1) : n]))
        for n in range(3)
    ]
    await eventually(agents[1], linked(1, 3), "the middle is linked")
    ends = [Subscriber(brokers[n].port, "ends/#", client_id=f"end-{n}") for n in (0, 3)]
    async with undisturbed(brokers[1], brokers[2]), running(*ends):
        agents.append(await plain.agent(1, brokers[3], brokers[2].url))
        doubles = (agents[0], agents[3])
        await until(
            lambda: any(named(agent, "id.conflict") for agent in doubles),
            "one of the two finds out",
            deadline_s=40,
        )
        found = next(agent for agent in doubles if named(agent, "id.conflict"))
        status = await found.status()

    assert not status["ready"]
    assert "id 1 is used by another agent" in status["ready_reason"]
    assert len(named(found, "id.conflict")) == 1
    assert sum(tally(agents[1]).values()) < 60
    plain.assert_calm()


async def test_two_agents_with_one_id_at_one_broker_do_not_fight(plain):
    one, two, three = [await plain.broker() for _ in range(3)]
    first = await plain.agent(1, one)
    second = await plain.agent(2, two, one.url)
    await plain.agent(3, three, two.url)
    await eventually(first, linked(2), "linked")
    await eventually(second, linked(1, 3), "linked")
    async with undisturbed(two, three):
        rivals = (first, await plain.agent(1, one))
        await until(lambda: any(named(agent, "id.taken_over") for agent in rivals), "one gives way")
        (loser,) = [agent for agent in rivals if named(agent, "id.taken_over")]
        (winner,) = [agent for agent in rivals if agent is not loser]
        await eventually(winner, linked(2), "the other is in")
        before = [tally(agent)["connection.up"] for agent in rivals]
        await asyncio.sleep(5)  # in which a fight would show
        status = await loser.status()

    assert "another agent with id 1 is there" in status["ready_reason"]
    assert loser is rivals[1]
    assert [tally(agent)["connection.up"] for agent in rivals] == before
    assert [len(named(agent, "id.taken_over")) for agent in (loser, winner)] == [1, 0]
    plain.assert_calm()


async def test_a_second_agent_with_another_id_at_one_broker_says_so_and_leaves(plain, tmp_path):
    one, two = [await plain.broker() for _ in range(2)]
    first = await plain.agent(1, one)
    await plain.agent(2, two, one.url)
    await eventually(first, linked(2), "linked")
    config = tmp_path / "second.toml"
    config.write_text(PlainConfig(7, one.url).toml(tmp_path / "second"))
    async with undisturbed(one, two):
        code, _, told = await ran("run", "-c", str(config))
        await until(lambda: named(first, "broker.shared"), "the first one says so")

    assert code == 78, told
    assert told.splitlines()[-1].startswith(f"federator: broker.url: {one.url}"), told
    assert "has an agent already, with id 1" in told
    (line,) = named(first, "broker.shared")
    assert (line["id"], line["other"]) == (1, 7)
    plain.assert_calm()


@pytest.mark.parametrize("state", ["kept", "deleted"])
async def test_a_clock_that_was_set_back_heals_by_itself(plain, state):
    one, two, three = [await plain.broker() for _ in range(3)]
    middle = await plain.agent(2, two)
    far = await plain.agent(3, three, two.url)
    await eventually(far, linked(2), "linked")
    agent = await plain.agent(1, one, two.url)
    await agent.stop()
    (agent.state_dir / "epoch").write_text(f"{FUTURE_MS}\n")
    await agent.start()
    subscriber = Subscriber(one.port, "plant/#", client_id="sub")
    publisher = Publisher(three.port, "plant/1", client_id="pub")
    async with running(subscriber, publisher):
        await gets_through(publisher, subscriber)
        await agent.stop()
        if state == "deleted":
            shutil.rmtree(agent.state_dir)
        await agent.start()
        await eventually(middle, linked(1, 3), "linked again")
        await gets_through(publisher, subscriber)

        status = await agent.status()
    assert status["epoch"] > FUTURE_MS
    assert len(named(agent, "epoch.renewed")) == (state == "deleted")
    assert int(damage.unsealed((agent.state_dir / "epoch").read_bytes())) == status["epoch"]


async def test_a_broker_that_is_not_there_yet_is_waited_for(plain, tmp_path):
    (port,) = free_ports(1)
    agent = await plain.agent(1, f"mqtt://127.0.0.1:{port}")
    status = await eventually(
        agent, lambda s: "connection refused" in s["ready_reason"], "it says why"
    )
    await asyncio.sleep(2)  # some more attempts

    assert not status["ready"]
    code, told, _ = await ran("status", "-c", str(agent.config_path))
    assert (code, "NOT READY: " in told) == (1, True)
    assert tally(agent)["connection.refused"] == 3  # one line for each of the three connections
    async with BrokerProcess(tmp_path / "late", port=port, extra_config=QUICK):
        await eventually(agent, lambda s: s["ready"], "ready once it is there")
        await agent.stop()


async def test_a_wrong_password_is_told_and_fails_fast_when_asked(plain, tmp_path):
    broker = await plain.broker(allow_anonymous=False)
    secret = tmp_path / "password"
    secret.write_text("wrong")
    secret.chmod(0o600)
    credentials = {"username": "agent", "password_file": str(secret)}
    agent = await plain.agent(1, broker, broker=credentials)
    status = await eventually(agent, lambda s: "not authorized" in s["ready_reason"], "it says why")

    assert not status["ready"]
    assert "wrong" not in agent.log_path.read_text().replace("wrong user name", "")
    await agent.stop()
    code, out, told = await ran("run", "--fail-fast", "-c", str(agent.config_path))
    assert (code, out, told.count("\n")) == (77, "", 1), told
    assert told.endswith("check broker.username and password\n")


async def test_a_neighbour_with_another_id_than_configured_is_named_and_not_linked(plain):
    one, two = [await plain.broker() for _ in range(2)]
    agent = await plain.agent(1, one, (two.url, 7), links={"dial_back": False})
    await plain.agent(2, two, one.url)
    await until(lambda: named(agent, "neighbour.unexpected_id"), "it says so")
    await asyncio.sleep(3)  # three more hellos

    (line,) = named(agent, "neighbour.unexpected_id")
    assert (line["neighbour"], line["wanted"], line["address"]) == (2, 7, two.url)
    assert [k["state"] for k in (await agent.status())["links"]] == ["down"]


async def test_our_own_broker_among_the_neighbours_is_told_once_and_is_no_link(plain):
    one = await plain.broker()
    agent = await plain.agent(1, one, f"mqtt://localhost:{one.port}")
    await until(lambda: named(agent, "neighbour.is_own_broker"), "it says so")
    await eventually(agent, lambda s: s["ready"], "ready")
    await asyncio.sleep(3)  # in which a loop would show

    assert len(named(agent, "neighbour.is_own_broker")) == 1
    assert [link["state"] for link in (await agent.status())["links"]] == ["down"]
    assert tally(agent)["connection.up"] == 5  # three to our broker, two to "the neighbour"


async def test_a_broker_that_retains_nothing_is_named_as_the_reason(plain):
    broker = await plain.broker(extra_config=("retain_available false",))
    agent = await plain.agent(1, broker)

    await eventually(agent, lambda s: "retain not supported" in s["ready_reason"], "it says why")


async def test_nobody_else_may_look_into_the_state_folder_whatever_the_umask(plain):
    before = os.umask(0o022)
    try:
        broker = await plain.broker()
        agent = await plain.agent(1, broker, more="[metrics]\nenabled = true")
        await eventually(agent, linked(), "the agent is ready")
        async with undisturbed(broker, broker):
            pass
        await agent.stop()
    finally:
        os.umask(before)

    folder = agent.state_dir
    open_to_others = [each for each in (folder, *folder.rglob("*")) if each.stat().st_mode & 0o077]
    assert open_to_others == []


async def test_a_broker_that_takes_all_connections_for_one_client_is_told(plain, tmp_path):
    write_secret(tmp_path / "secret")
    passwords = f"password_file {write_passwords(tmp_path / 'passwords', 'alice')}"
    lines = (*QUICK, passwords, "use_username_as_clientid true")
    broker = await plain.broker(allow_anonymous=False, extra_config=lines)
    login = {"username": "alice", "password_file": str(tmp_path / "secret")}
    agent = await plain.agent(1, broker, broker=login)

    await until(lambda: named(agent, "broker.one_id"), "it is told")
    status = await agent.status()

    assert len(named(agent, "broker.one_id")) == 1
    assert "takes all connections of user 'alice' for one client" in status["ready_reason"]

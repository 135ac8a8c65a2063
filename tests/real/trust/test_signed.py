"""A signed federation of real brokers and agents, and those who would like to be in it."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from federator.cli.setup.keys import command as keys_command
from federator.protocol.messages.codec import encode
from federator.protocol.messages.control import CoreAnn, Hello
from tests.real.agent_log import named
from tests.real.client import Client
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until
from tests.real.trust.traffic import traffic


def keys(*arguments):
    """Run ``federator keys``."""
    result = CliRunner().invoke(keys_command, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output or result.exception
    return result.output


class Office:
    """A folder with a federation key."""

    def __init__(self, folder):
        self.folder = folder
        keys("init", folder)

    def section(self, id_):
        """``[keys]`` for the agent of a broker. Only agent 1 is told what is revoked."""
        path = self.folder / f"agent-{id_}.key"
        revoked = self.folder / "revocations"
        if not path.exists():
            keys("issue", "--dir", self.folder, "--broker", id_, "--out", path)
        return "\n".join(
            [
                "[keys]",
                f"agent_file = {json.dumps(str(path))}",
                f"federation_files = [{json.dumps(str(self.folder / 'federation.pub'))}]",
                *([f"revocations_file = {json.dumps(str(revoked))}"] if id_ == 1 else []),
            ]
        )


async def line_of_three(plain, office, security="signed"):
    """Three linked brokers; ``security``: of all, or of each."""
    each = (security,) * 3 if isinstance(security, str) else security
    brokers = [await plain.broker() for _ in range(3)]
    agents = []
    for id_, broker in enumerate(brokers, 1):
        neighbours = [brokers[id_ - 2].url] if id_ > 1 else []
        agent = await plain.agent(
            id_, broker, *neighbours, security=each[id_ - 1], more=office.section(id_)
        )
        agents.append(agent)
    await eventually(agents[1], linked(1, 3), "linked")
    return brokers, agents


@pytest.mark.parametrize("security", ["signed", "sealed", "proven"])
async def test_publications_cross_three_brokers(plain, office, security):
    brokers, agents = await line_of_three(plain, office, security)
    eavesdropper = Attacker(brokers[1].port)
    async with traffic(brokers[0], brokers[2], eavesdropper, rate_hz=100):
        await until(lambda: len(eavesdropper.of("data")) > 50, "frames are overheard")

        status = await agents[0].status()

    assert status["security"]["mode"] == security
    readable = [b"a/b" in payload for _, payload in eavesdropper.of("data")]
    assert any(readable) == (security != "sealed")
    assert not any(named(agent, "trust.refused") for agent in agents)


async def test_a_copy_of_an_agent_elsewhere_takes_nothing_from_it_and_is_named(plain, office):
    here, there, elsewhere = [await plain.broker() for _ in range(3)]
    first = await plain.agent(1, here, security="signed", more=office.section(1))
    agent = await plain.agent(2, there, here.url, security="signed", more=office.section(2))
    await eventually(first, linked(2), "linked")
    async with traffic(there, here, rate_hz=50) as (publisher, subscriber):
        since = publisher.sent
        copy = await plain.agent(2, elsewhere, here.url, security="signed", more=office.section(2))
        await until(lambda: named(first, "neighbour.id_conflict"), "its neighbour names both")
        await until(lambda: named(agent, "neighbour.has_own_id"), "so does the agent itself")
        await asyncio.sleep(3)  # some more hellos of both
        await copy.stop()
        await gets_through(publisher, subscriber)
        missed = {*range(since, publisher.sent - 50)} - set(subscriber.came)

    assert missed == set()
    assert subscriber.duplicates == 0
    (line,) = named(first, "neighbour.id_conflict")
    assert (line["address"], line["also_at"]) == (elsewhere.url, there.url)
    (line,) = named(agent, "neighbour.has_own_id")
    assert (line["address"], line["other_address"]) == (there.url, elsewhere.url)
    assert named(first, "link.down") == named(agent, "link.down") == []


class Attacker(Client):
    """A client that may read and write everything on one broker.

    Attributes:
        heard: (topic, payload) of all that agents told this broker's agent.
    """

    def __init__(self, port):
        super().__init__(port, "attacker", "$fed/#", qos=0)
        self.heard = self.came

    def say(self, kind, payload):
        return self.link.publish(f"$fed/fed/{kind}", payload)

    def of(self, *kinds):
        return [(t, p) for t, p in self.heard if t.rsplit("/", 1)[-1] in kinds]


def up(status):
    """Neighbours with a live link."""
    return {link["neighbour"] for link in status["links"] if link["state"] == "up"}


def refusals(agent, text):
    return [line for line in named(agent, "trust.refused") if text in line["reason"]]


async def test_a_client_cannot_become_core_0(plain, office):
    brokers, agents = await line_of_three(plain, office)
    attacker = Attacker(brokers[1].port)
    ends = brokers[0], brokers[2]
    async with traffic(*ends, attacker, qos=0) as (publisher, subscriber):
        before = (await agents[1].status())["cores"]

        for sender in (0, 1, 3):
            attacker.say("hello", encode(Hello(1, sender, 7, 1, 0, "", ())))
            forged = CoreAnn(sender, 0, -9, 7, 1, 0, True, ("a/#",), (), 99, 1)
            attacker.say("core_ann", encode(forged))
        attacker.say("data", b"\x02" + bytes(80))

        await until(
            lambda: (
                {"core_ann", "data"} <= {r["kind"] for r in refusals(agents[1], "without a seal")}
            ),
            "messages and frames are refused",
        )
        await gets_through(publisher, subscriber)
        after = (await agents[1].status())["cores"]
    assert [core["core"] for core in after] == [core["core"] for core in before]


async def test_what_was_recorded_says_nothing_now_or_after_restarts(plain, office):
    brokers, agents = await line_of_three(plain, office)
    attacker = Attacker(brokers[1].port)
    ends = brokers[0], brokers[2]
    async with traffic(*ends, attacker, qos=0) as (publisher, subscriber):
        await until(lambda: len(attacker.of("data")) > 50 and attacker.of("core_ann"), "recorded")
        publisher.pause()
        recorded = attacker.of("hello", "core_ann", "mesh_memb_ann", "ctl", "data")

        for topic, payload in recorded:
            attacker.say(topic.rsplit("/", 1)[-1], payload)
        await until(lambda: refusals(agents[1], "came before"), "replays are refused")

        agents[1].kill9()
        await agents[1].restart()
        await eventually(agents[1], lambda status: up(status) == {1, 3}, "linked again")
        for topic, payload in recorded:
            attacker.say(topic.rsplit("/", 1)[-1], payload)
        await until(lambda: refusals(agents[1], "do not hold"), "and after a restart")
        status = await agents[1].status()

    assert subscriber.duplicates == 0
    assert up(status) == {1, 3}


async def test_an_agent_without_our_certificate_is_no_neighbour(plain, office, tmp_path):
    _, agents = await line_of_three(plain, office)
    theirs = Office(tmp_path / "theirs")
    middle = plain.agents[1].config.broker_url
    rogues = [
        await plain.agent(4, await plain.broker(), middle),
        await plain.agent(
            5, await plain.broker(), middle, security="signed", more=theirs.section(5)
        ),
    ]

    await until(lambda: refusals(agents[1], "not trusted"), "the other federation's is refused")
    await until(lambda: named(agents[1], "trust.refused"), "so is the open one")

    for agent in (agents[1], *rogues):
        status = await agent.status()
        assert not {4, 5} & up(status)


async def test_keys_change_under_way_and_nothing_is_lost(plain, office):
    brokers, agents = await line_of_three(plain, office)
    ends = brokers[0], brokers[2]
    async with traffic(*ends, qos=0, rate_hz=500) as (publisher, subscriber):
        since = publisher.sent
        for id_ in (1, 2, 3):
            path, fresh = office.folder / f"agent-{id_}.key", office.folder / f"fresh-{id_}.key"
            keys("issue", "--dir", office.folder, "--broker", id_, "--out", fresh)
            fresh.replace(path)
        for agent in agents:
            await until(
                lambda a=agent: named(a, "trust.certificate_changed"), "the new one is taken up"
            )
        await gets_through(publisher, subscriber)
        until_number = publisher.sent
        publisher.pause()
        await until(lambda: subscriber.came[until_number - 1] > 0, "the last one came")

    assert [n for n in range(since, until_number) if not subscriber.came[n]] == []
    assert subscriber.duplicates == 0


async def test_a_revoked_agent_is_out_everywhere_though_one_was_told(plain, office):
    _, agents = await line_of_three(plain, office)

    keys("revoke", "--dir", office.folder, "--broker", 3)

    await eventually(
        agents[1],
        lambda status: 3 not in up(status),
        "3 is out",
    )
    assert up(await agents[1].status()) == {1}
    assert refusals(agents[1], "revoked") or named(agents[1], "trust.dropped")

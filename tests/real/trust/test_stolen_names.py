"""A client with a login takes the names by which agents are known to brokers.

On brokers with passwords and the ACL that `federator doctor --acl` prints, so that nothing but the
name is left to steal. docs/security.md, "Threats and answers".
"""

import asyncio
import tarfile
import time

import mqtt5
import pytest

from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.mqtt.session_packets import wipe_session
from federator.runtime.storage.state_dir import StateDir
from tests.real.agent_log import named
from tests.real.flow import running
from tests.real.logins import SECRET, login, write_acl, write_passwords, write_secret
from tests.real.observability.test_cli_agent import ran
from tests.real.plain_agents import DEEP, QUICK, eventually, gets_through, linked
from tests.real.polling import until
from tests.real.trust.test_signed import Attacker
from tests.real.trust.traffic import traffic
from tests.real.undisturbed import undisturbed

USERS = ("federator", "federator-peer", "alice", "mallory")
ROLES = ("ctl", "data", "retained", "share-0", "share-1")


@pytest.fixture
def passwords(tmp_path):
    return write_passwords(tmp_path / "passwords", *USERS)


@pytest.fixture
async def guarded(plain, tmp_path, office, passwords):
    """Brokers 1 - 2 - 3 that let nobody do what is not theirs, and their signed agents."""
    secret_file = write_secret(tmp_path / "secret")
    brokers = []
    for id_ in (1, 2, 3):
        acl = write_acl(tmp_path / f"acl-{id_}", id_)
        lines = (*QUICK, *DEEP, f"password_file {passwords}", f"acl_file {acl}")
        brokers.append(await plain.broker(allow_anonymous=False, extra_config=lines))
    for id_, broker in enumerate(brokers, 1):
        await plain.agent(
            id_,
            broker,
            *([brokers[id_ - 2].url] if id_ > 1 else []),
            broker={"username": "federator", "password_file": str(secret_file)},
            links={"username": "federator-peer", "password_file": str(secret_file)},
            security="signed",
            more=office.section(id_),
        )
    await eventually(plain.agents[1], linked(1, 3), "linked")
    return brokers


def alice():
    return login("alice")


async def steal(broker, name, *, clean=True):
    """Be ``name`` at ``broker`` for a moment, and leave nothing of its session, or nearly all."""
    connect = mqtt5.ConnectPacket(
        name, username="mallory", password=SECRET.encode(), clean_start=clean
    )
    await wipe_session(Endpoint("127.0.0.1", broker.port), connect.write())


async def steal_all(brokers, agents, *, clean=True):
    """Take every name that can be guessed, or that another broker's log gives away."""
    for here, broker in enumerate(brokers, 1):
        names = {f"federator-{here}-{role}" for role in ROLES}
        for other in (each for each in brokers if each is not broker):
            told = set(broker_words(other))
            names |= {word for word in told if word.startswith(f"federator-{here}-")}
            names |= {
                f"federator-{here}-{role}-{word.rsplit('-', 1)[-1]}"
                for word in told
                if word.startswith(f"federator-{here}-to-")
                for role in ROLES[:3]
            }
        for epoch in {line["epoch"] for a in agents for line in named(a, "agent.started")}:
            names |= {f"federator-{here}-{role}-{epoch:x}" for role in ROLES[:3]}
        for name in sorted(names):
            await steal(broker, name, clean=clean)


def broker_words(broker):
    return broker.log_path.read_text().replace("'", " ").split()


async def test_who_takes_our_names_takes_nothing_from_us(guarded, plain):
    one, _, three = guarded
    async with (
        traffic(one, three, login=alice()) as stream,
        undisturbed("1, 2 names", *stream, processes=plain.agents),
    ):
        for clean in (True, False, True):
            await steal_all(guarded, plain.agents, clean=clean)
            await asyncio.sleep(1)  # what was published meanwhile is under way

    for agent in plain.agents:
        assert not named(agent, "connection.taken_over") + named(agent, "id.taken_over")
    plain.assert_calm()


async def test_what_waits_for_an_agent_outlasts_who_takes_its_name(guarded, plain):
    one, _, three = guarded
    agent = plain.agents[0]
    async with traffic(one, three, login=alice()) as (publisher, subscriber):
        await agent.stop()
        first = publisher.sent
        await until(lambda: publisher.sent >= first + 50, "50 wait in the broker")
        await publisher.rest()
        await steal_all(guarded, plain.agents)
        await agent.start()
        publisher.resume()
        last = publisher.sent
        await until(lambda: set(range(first, last)) <= set(subscriber.came), "all came")


async def test_who_knows_our_name_throws_us_out_for_a_moment_only(guarded, plain):
    one, _, three = guarded
    agent = plain.agents[0]
    secret = StateDir(agent.state_dir).client_token()
    async with traffic(one, three, qos=0, login=alice()) as (publisher, subscriber):
        for role in ("ctl", "data"):
            await steal(one, f"federator-1-{role}-{secret}")
            await until(
                lambda role=role: any(
                    line["client_id"] == f"federator-1-{role}"
                    for line in named(agent, "connection.taken_over")
                ),
                "it is said who did it",
            )
            since_s = time.monotonic()
            await gets_through(publisher, subscriber)
            assert time.monotonic() - since_s < 20

    assert not named(agent, "id.taken_over")
    plain.assert_calm()


async def test_the_secret_of_our_names_is_told_to_nobody(guarded, plain, tmp_path):
    secrets = [StateDir(a.state_dir).client_token() for a in plain.agents]
    assert len(set(secrets)) == 3
    agent = plain.agents[1]
    assert (agent.state_dir / "client-token").stat().st_mode & 0o077 == 0
    archive = tmp_path / "archive.tar.gz"
    config = ("-c", str(agent.config_path))
    told = [each.log_path.read_text() for each in plain.agents]
    told.append(str(await agent.status()))
    for verb in ("doctor", "status"):
        told += [str(each) for each in await ran(verb, *config)]
    await ran("diag", *config, "-o", str(archive), "--log", str(agent.log_path))
    with tarfile.open(archive) as files:
        told += [files.extractfile(each).read().decode() for each in files if each.isfile()]

    for own, secret in zip(guarded, secrets, strict=True):
        assert secret in own.log_path.read_text(), "our broker knows us by it"
        for text in (*told, *(o.log_path.read_text() for o in guarded if o is not own)):
            assert secret not in text


def with_link(status):
    return status["ready"] and [link["state"] for link in status["links"]] == ["up"]


async def test_only_an_agent_with_our_certificate_has_us_give_way(plain, office):
    one, two = [await plain.broker() for _ in range(2)]  # without an ACL
    keys = {"security": "signed", "more": office.section(1)}
    first = await plain.agent(1, one, **keys)
    await plain.agent(2, two, one.url, security="signed", more=office.section(2))
    await eventually(first, linked(2), "linked")
    stranger = Attacker(one.port)
    async with running(stranger):
        await until(lambda: stranger.link.subscribed, "the stranger listens")
        rival = await plain.agent(1, one, **keys)
        await until(lambda: named(rival, "id.taken_over"), "the younger gives way")
        words = [payload for _, payload in stranger.of("agent")]
        assert any(len(word.split()) > 4 for word in words), "an answer was heard"
        await rival.stop()

        await first.restart()  # now it is the younger of all that was heard
        await eventually(first, with_link, "linked again")
        heard = len(stranger.of("agent"))
        await until(lambda: len(stranger.of("agent")) >= heard, "it spoke")
        questions = [payload.split()[3] for _, payload in stranger.of("agent")]
        for word in words:
            stranger.say("agent", word)
            for question in questions:
                stranger.say("agent", b" ".join([*word.split()[:4], question, b"00"]))
                stranger.say("agent", b" ".join([*word.split()[:4], question, *word.split()[5:]]))
        stranger.say("agent", b"7 1 " + words[0].split(b" ", 2)[2])
        async with traffic(one, two, qos=0):
            pass

    assert not named(first, "id.taken_over")
    assert not named(first, "broker.shared")
    assert with_link(await first.status())
    plain.agents.remove(rival)
    plain.assert_calm()


class Pretender(Attacker):
    """Answers whatever an agent asks at its broker, as one with another id that came before it."""

    def on_publishes(self, link, chunk, publishes):
        super().on_publishes(link, chunk, publishes)
        for packet, _, _ in publishes:
            if packet.topic == "$fed/fed/agent":
                question = packet.payload.split()[3] if packet.payload.count(b" ") > 2 else b""
                self.say("agent", b"7 1")
                self.say("agent", b"7 1 %b %b %b 00" % (b"ab" * 16, b"cd" * 16, question))


async def test_no_word_of_a_client_ends_an_agent_that_starts(plain, office):
    one = await plain.broker()
    pretender = Pretender(one.port)
    async with running(pretender):
        await until(lambda: pretender.link.subscribed, "the stranger listens")
        agent = await plain.agent(1, one, security="signed", more=office.section(1))
        await until(lambda: len(pretender.of("agent")) > 0, "it asked and was answered")
        await eventually(agent, lambda s: s["ready"], "ready")
        await agent.restart()
        await eventually(agent, lambda s: s["ready"], "ready again")

    assert not named(agent, "broker.shared")
    plain.assert_calm()

"""What waits under the name that the data connection had before names were secret."""

import contextlib

import mqtt5

from federator.runtime.mqtt.link import Endpoint
from federator.runtime.mqtt.session_packets import wipe_session
from federator.runtime.storage.state_dir import StateDir
from tests.real.agent_log import named
from tests.real.client import Client
from tests.real.custody.resting import resting_stream
from tests.real.flow import running
from tests.real.plain_agents import gets_through
from tests.real.polling import until

FORMER = "federator-1-data"


def predecessor_at(port, *filters):
    """The data connection as it was, or whoever asks for its session."""
    return Client(port, FORMER, *filters, clean_start=False, session_expiry_s=600)


async def as_before(agent, broker):
    """Leave nothing at the broker, and in the state folder, that was not there in former times."""
    secret = agent.state_dir / "client-token"
    connect = mqtt5.ConnectPacket(
        f"{FORMER}-{StateDir(agent.state_dir).client_token()}", clean_start=True
    )
    assert await wipe_session(Endpoint("127.0.0.1", broker.port), connect.write())
    secret.unlink()


@contextlib.asynccontextmanager
async def under_a_former_name(plain):
    """A broker and its stopped agent, whose session has the name of former times; a publisher there
    that rests, and a subscriber at another broker that has everything.
    """
    async with resting_stream(plain) as ((one, _), (agent, _), publisher, subscriber):
        await agent.stop()
        await as_before(agent, one)
        predecessor = predecessor_at(one.port, "plant/#")
        async with running(predecessor):
            await until(lambda: predecessor.link.subscribed, "subscribed")
        yield one, agent, publisher, subscriber


async def test_what_waits_under_a_former_name_is_taken_once(plain):
    async with under_a_former_name(plain) as (one, agent, publisher, subscriber):
        first = publisher.sent
        publisher.resume()
        await until(lambda: publisher.sent >= first + 50, "50 wait under the former name")
        await publisher.rest()

        await agent.start()
        owed = set(range(first, publisher.sent))
        await until(lambda: owed <= set(subscriber.came), "all came")
        publisher.resume()
        await gets_through(publisher, subscriber)
        await until(lambda: named(agent, "session.moved"), "the former session is left")
        heir = predecessor_at(one.port)
        async with running(heir):
            await until(lambda: heir.present is not None, "answered")

    assert heir.present is False
    assert subscriber.duplicates == 0
    (line,) = named(agent, "session.moved")
    assert (line["publications"], line["whole"]) == (len(owed), True)
    assert not (agent.state_dir / "former-session").exists()
    plain.assert_calm()


async def test_what_clients_publish_while_a_former_name_is_left_comes_once(plain):
    async with under_a_former_name(plain) as (_, agent, publisher, subscriber):
        first = publisher.sent
        publisher.resume()

        await agent.start()
        await until(lambda: named(agent, "session.moved"), "moved")
        moved = publisher.sent
        await until(lambda: publisher.sent >= moved + 50, "some more")
        await publisher.rest()
        owed = set(range(first, publisher.sent))
        await until(lambda: owed <= set(subscriber.came), "all came")

    assert subscriber.duplicates == 0
    (line,) = named(agent, "session.moved")
    assert line["whole"]
    assert not (agent.state_dir / "former-session").exists()
    plain.assert_calm()

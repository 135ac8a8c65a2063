"""What waits under the name that the data connection had before names were secret."""

import mqtt5

from federator.runtime.mqtt.link import Endpoint, MqttLink
from federator.runtime.mqtt.session_packets import wipe_session
from tests.real.agent_log import named
from tests.real.flow import Publisher, Subscriber, running
from tests.real.handler import Handler
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until

FORMER = "federator-1-data"


class Predecessor(Handler):
    """The data connection as it was, or whoever asks for its session."""

    def __init__(self, port, *filters):
        self.present = None
        self.link = MqttLink(
            Endpoint("127.0.0.1", port),
            self,
            client_id=FORMER,
            clean_start=False,
            session_expiry_s=600,
        )
        self.link.subscribe([mqtt5.TopicFilter(f, max_qos=mqtt5.QoS(1)) for f in filters])

    def on_up(self, link, session_present):
        self.present = session_present


async def as_before(agent, broker):
    """Leave nothing at the broker, and in the state folder, that was not there in former times."""
    secret = agent.state_dir / "client-token"
    connect = mqtt5.ConnectPacket(f"{FORMER}-{secret.read_text().strip()}", clean_start=True)
    assert await wipe_session(Endpoint("127.0.0.1", broker.port), connect.write())
    secret.unlink()


async def test_what_waits_under_a_former_name_is_taken_once(plain):
    one, two = [await plain.broker() for _ in range(2)]
    agent = await plain.agent(1, one)
    await plain.agent(2, two, one.url)
    await eventually(agent, linked(2), "linked")
    subscriber = Subscriber(two.port, "plant/#", client_id="sub", qos=1)
    publisher = Publisher(one.port, "plant/1", client_id="pub", qos=1)
    async with running(subscriber, publisher):
        await gets_through(publisher, subscriber)
        publisher.pause()
        await until(lambda: publisher.link.unacknowledged == 0, "the broker has them")
        last = publisher.sent - 1
        await until(lambda: subscriber.came[last], "all that is under way came")
        await agent.stop()
        await as_before(agent, one)
        predecessor = Predecessor(one.port, "plant/#")
        async with running(predecessor):
            await until(lambda: predecessor.link.subscribed, "subscribed")
        first = publisher.sent
        publisher.resume()
        await until(lambda: publisher.sent >= first + 50, "50 wait under the former name")
        publisher.pause()
        await until(lambda: publisher.link.unacknowledged == 0, "the broker has them")

        await agent.start()
        owed = set(range(first, publisher.sent))
        await until(lambda: owed <= set(subscriber.came), "all came")
        publisher.resume()
        await gets_through(publisher, subscriber)
        heir = Predecessor(one.port)
        async with running(heir):
            await until(lambda: heir.present is not None, "answered")

    assert heir.present is False
    assert subscriber.duplicates == 0
    (line,) = named(agent, "session.moved")
    assert (line["publications"], line["whole"]) == (len(owed), True)
    assert not (agent.state_dir / "former-session").exists()
    plain.assert_calm()

"""Words that are not for neighbours, on brokers without an ACL: who may say them, and who cannot.

The attacker may write and read all of ``$fed/#``. docs/security.md, "Roles".
"""

import json

import pytest
from mqtt5 import PublishPacket

from federator.protocol.messages.json_codec import encode
from federator.protocol.messages.operators import Drain
from tests.real.agent_log import named
from tests.real.flow import Publisher, Subscriber, running
from tests.real.observability.test_cli_agent import ran
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until
from tests.real.trust.test_signed import Attacker, Office, keys, refusals

ECHOES = 5
"""Marks of an agent to itself, two a second: by then it has noted what its broker has."""


@pytest.fixture
def office(tmp_path):
    return Office(tmp_path / "office")


REQUIRED = '\nroles = "required"'


async def pair(plain, office):
    """Brokers 1 - 2 and their signed agents."""
    brokers = [await plain.broker(persistence=True) for _ in range(2)]
    one, two = (office.section(id_) + REQUIRED for id_ in (1, 2))
    one = await plain.agent(1, brokers[0], security="signed", more=one)
    two = await plain.agent(2, brokers[1], brokers[0].url, security="signed", more=two)
    await eventually(one, linked(2), "linked")
    return brokers, [one, two]


class Recorder(Attacker):
    """Says again what it heard."""

    def markers(self):
        return [payload for topic, payload in self.heard if topic == "$fed/fed/delivered/2"]

    async def hears_echoes(self):
        def echoes():
            return sum(topic.startswith("$fed/fed/echo/") for topic, _ in self.heard)

        before = echoes()
        await until(lambda: echoes() > before + ECHOES, "the agent has noted what its broker has")

    async def keep(self, kind, payload):
        """Have the broker retain it; returns when it is heard."""
        packet, heard = PublishPacket(f"$fed/fed/{kind}", payload, retain=True), len(self.heard)
        await until(lambda: self.link.write_packets([packet.write()], 1), "there is room")
        await until(lambda: (packet.topic, payload) in self.heard[heard:], "it is heard")


def all_came(publisher, subscriber):
    return set(range(min(subscriber.came), publisher.sent)) == set(subscriber.came)


@pytest.mark.parametrize("how", ["older", "none", "invented"])
async def test_a_delivered_marker_put_back_has_nothing_delivered_twice_or_lost(plain, office, how):
    brokers, agents = await pair(plain, office)
    subscriber = Subscriber(brokers[1].port, "a/#", client_id="sub", qos=1)
    publisher = Publisher(brokers[0].port, "a/b", client_id="pub", qos=1)
    recorder = Recorder(brokers[1].port)
    async with running(subscriber, publisher, recorder):
        await gets_through(publisher, subscriber)
        await recorder.hears_echoes()  # what was folded into the journal does not come again
        old = recorder.markers()[-1]
        sent = publisher.sent
        await until(lambda: publisher.sent > sent + 100, "more is published")
        publisher.pause()
        await until(lambda: all_came(publisher, subscriber), "all came")
        await recorder.hears_echoes()
        agents[1].kill9()
        journal_id, _, rest = recorder.markers()[-1].partition(b"|")
        ahead = b"%s|%d" % (journal_id, int(rest.partition(b"|")[0]) + 1_000)
        await recorder.keep("delivered/2", {"older": old, "none": b"", "invented": ahead}[how])
        publisher.resume()
        since = publisher.sent
        await until(lambda: publisher.sent > since + 50, "published while the agent is away")
        await agents[1].restart()
        await gets_through(publisher, subscriber)
        publisher.pause()
        await until(lambda: all_came(publisher, subscriber), "nothing is lost")

    assert subscriber.duplicates == 0
    assert bool(named(agents[1], "custody.marker_refused")) == (how == "invented")


def draining(agents):
    return [bool(named(agent, "drain.started")) for agent in agents]


async def test_only_an_operator_drains_a_broker_and_the_order_cannot_be_repeated(plain, office):
    brokers, agents = await pair(plain, office)
    for role, name in (("operator", "ann"), ("gateway", "gate")):
        keys("issue", "--dir", office.folder, "--role", role, "--name", name)
    ann, gate = office.folder / "operator-ann.key", office.folder / "gateway-gate.key"
    recorders = [Recorder(broker.port) for broker in brokers]
    async with running(*recorders):
        await until(lambda: all(each.link.subscribed for each in recorders), "they hear")
        recorders[0].say("drain", encode(Drain(2, True)))
        await until(lambda: refusals(agents[0], "without its signature"), "it is refused")
        code, _, err = await ran("drain", "2", "-c", str(agents[0].config_path), "--key", str(gate))
        assert (code, "name the key of one operator" in err) == (78, True)
        assert draining(agents) == [False, False]

        config = str(agents[0].config_path)
        for verb in ("drain", "undrain"):
            code, out, err = await ran(verb, "2", "-c", config, "--key", str(ann))
            assert code == 0, out + err
        _, order = next(each for each in recorders[0].of("drain") if b"proof" in each[1])
        for recorder, agent, why in zip(
            recorders, agents, ("came before", "is for another"), strict=True
        ):
            recorder.say("drain", order)
            await until(lambda a=agent, w=why: refusals(a, w), "a recorded order is refused")
        await agents[0].restart()
        await recorders[0].hears_echoes()
        recorders[0].say("drain", order)
        await until(lambda: refusals(agents[0], "an earlier start"), "nor after a restart")
        status = await agents[0].page("/controller")

    assert json.dumps(status).count("draining") == 0, status
    assert len(named(agents[1], "drain.started")) == len(named(agents[1], "drain.ended")) == 1

"""Words that are not for neighbours, on brokers without an ACL: who may say them, and who cannot.

The attacker may write and read all of ``$fed/#``. docs/security.md, "Roles".
"""

import asyncio
import json
import os
import struct
import time
from base64 import b64decode, b64encode
from functools import partial

import msgspec
import pytest

from federator.protocol.messages.gateways import Claim
from federator.protocol.messages.guide import Guide, GuideBroker
from federator.protocol.messages.json_codec import decode, encode
from federator.protocol.messages.operators import Drain
from federator.protocol.trust.proofs import decode_proof
from federator.protocol.trust.words import NOBODY
from lab.grid.processes.daemons import CollectorProcess
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from tests.real.agent_log import named
from tests.real.flow import Publisher, Subscriber, running
from tests.real.observability.test_cli_agent import ran
from tests.real.plain_agents import eventually, gets_through, linked, settled
from tests.real.polling import until
from tests.real.trust.test_signed import Attacker, keys, refusals, up
from tests.real.trust.traffic import traffic
from tests.real.undisturbed import undisturbed

ECHOES = 5
"""Marks of an agent to itself, two a second: by then it has noted what its broker has."""

FORGERIES = 5_000
"""Of each kind; to judge one takes 0.13 ms."""

REPEATED = 1_000
HEADER = struct.Struct(">QQ16s")


REQUIRED = '\nroles = "required"'


async def pair(plain, office):
    """Brokers 1 - 2 and their signed agents."""
    brokers = [await plain.broker(persistence=True) for _ in range(2)]
    one, two = (office.section(id_) + REQUIRED for id_ in (1, 2))
    one = await plain.agent(1, brokers[0], security="signed", more=one)
    two = await plain.agent(2, brokers[1], brokers[0].url, security="signed", more=two)
    await eventually(one, linked(2), "linked")
    await eventually(two, linked(1), "linked")
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

    async def put(self, kind, payload):
        """Have the broker retain it."""
        await super().put(f"$fed/fed/{kind}", payload, retain=True)

    async def keep(self, kind, payload):
        """Have the broker retain it; returns when it is heard."""
        heard = len(self.heard)
        await self.put(kind, payload)
        await until(lambda: (f"$fed/fed/{kind}", payload) in self.heard[heard:], "it is heard")

    def guides(self, state):
        """What was said as a guide that calls broker 1 so."""
        said = [payload for _, payload in self.of("guide")]
        return [each for each in said if decode(Guide, each).brokers[0].state == state]

    async def say_until(self, kind, payload, done, *, times=1):
        for _ in range(times):
            await until(lambda: self.say(kind, payload), "there is room")
            await asyncio.sleep(0)
        await until(done, f"{kind} is refused")


def forgeries(kind, word, genuine, *, to):
    """Words under a member's certificate that look well until their signature is judged."""
    proof = b64decode(genuine.rpartition(b'"proof":"')[2][:-2])
    certificate = decode_proof(proof[HEADER.size :]).certificate
    for _ in range(FORGERIES):
        signature = os.urandom(63) + b"\x01"  # others are refused sooner
        forged = msgspec.msgpack.encode((certificate, signature))
        header = HEADER.pack(2**63, time.time_ns() // 1_000, to)
        said = b64encode(header + forged)
        yield f"$fed/fed/{kind}", encode(word)[:-1] + b',"proof":"' + said + b'"}'


def all_came(publisher, subscriber, *, since):
    return set(range(since, publisher.sent)) <= subscriber.came.keys()


def ahead_of(marker):
    """A marker of the same journal, without its proof, that says more was delivered."""
    journal_id, _, rest = marker.partition(b"|")
    return b"%s|%d" % (journal_id, int(rest.partition(b"|")[0]) + 1_000)


@pytest.mark.parametrize("how", ["older", "none", "invented"])
@pytest.mark.few(1)
async def test_a_delivered_marker_put_back_has_nothing_delivered_twice_or_lost(plain, office, how):
    brokers, agents = await pair(plain, office)
    subscriber = Subscriber(brokers[1].port, "a/#", client_id="sub", qos=1)
    publisher = Publisher(brokers[0].port, "a/b", client_id="pub", qos=1)
    recorder = Recorder(brokers[1].port)
    async with running(subscriber, publisher, recorder):
        since = await settled(publisher, subscriber)
        await recorder.hears_echoes()  # what was folded into the journal does not come again
        old = recorder.markers()[-1]
        forged = {"older": old, "none": b"", "invented": ahead_of(old)}[how]
        row = f"12 markers put back, {how}"
        async with undisturbed(row, publisher, subscriber, processes=agents):
            for _ in range(REPEATED):
                await recorder.put("delivered/2", forged)
                await asyncio.sleep(0)
        await gets_through(publisher, subscriber)
        publisher.pause()
        await until(lambda: all_came(publisher, subscriber, since=since), "all came")
        await recorder.hears_echoes()
        agents[1].kill9()
        if how == "invented":
            forged = ahead_of(recorder.markers()[-1])
        await recorder.keep("delivered/2", forged)
        publisher.resume()
        since = publisher.sent
        await until(lambda: publisher.sent > since + 50, "published while the agent is away")
        await agents[1].restart()
        await gets_through(publisher, subscriber)
        publisher.pause()
        await until(lambda: all_came(publisher, subscriber, since=since), "nothing is lost")

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
    async with traffic(*brokers, *recorders) as (publisher, subscriber):
        await until(lambda: all(each.link.subscribed for each in recorders), "they hear")
        async with undisturbed("12 drain", publisher, subscriber, processes=agents):
            for _ in range(100):
                recorders[0].say("drain", encode(Drain(2, True)))
            await until(lambda: refusals(agents[0], "without its signature"), "it is refused")
            await gets_through(publisher, subscriber)
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


def gateway(tmp_path, office, brokers, name):
    """A gateway with a key of its own."""
    keys("issue", "--dir", office.folder, "--role", "gateway", "--name", name)
    named_keys = {
        "gateway_file": str(office.folder / f"gateway-{name}.key"),
        "federation_files": [str(office.folder / "federation.pub")],
        "revocations_file": str(office.folder / "revocations"),
        "roles": "required",
    }
    urls = {id_: broker.url for id_, broker in enumerate(brokers, 1)}
    # A busy machine answers late; a SUBACK may wait for it.
    waits = {"settle_ms": 10_000}
    options = {"keys": named_keys, "attachment": {"assign": ["*=1"]}, "failover": waits}
    config = GatewayConfig(name, urls, federation="fed", more=options)
    return GatewayProcess(tmp_path / name, config)


async def test_no_forged_or_recorded_claim_or_guide_moves_a_gateways_client(
    plain, office, tmp_path
):
    brokers, agents = await pair(plain, office)
    recorders = [Recorder(broker.port) for broker in brokers]
    async with gateway(tmp_path, office, brokers, "gate") as gate:
        client = Subscriber(gate.port, "a/#", client_id="sub", qos=1)
        publisher = Publisher(brokers[1].port, "a/b", client_id="pub", qos=1)
        async with running(client, publisher, *recorders):
            await gets_through(publisher, client)
            await until(lambda: recorders[0].link.subscribed, "who records hears")
            agents[0].kill9()  # its broker says its Will: that nobody serves it
            await until(lambda: recorders[0].guides("gone"), "the Will is said")
            (will,) = recorders[0].guides("gone")
            await agents[0].restart()
            await eventually(agents[0], lambda s: up(s) == {2}, "linked again")
            await until(lambda: len(recorders[0].guides("up")) > 3, "a guide is said")
            moved = len(named(gate, "gateway.moving"))

            forged = Claim("other", 1, "sub", 2, came=True, lasts=False)
            gone = Guide(1, "fed", 2, 2, 2**60, 1, (GuideBroker(1, state="gone"),))
            await gets_through(publisher, client)
            watched = (*agents, gate)
            async with undisturbed("12 claims, guides", publisher, client, processes=watched):
                for kind, payload, why in (
                    ("claims", encode(forged), "gateway other without its signature"),
                    ("guide", encode(gone), "agent 2 without its signature"),
                    ("guide", will, "a word of broker 1 came before"),
                ):
                    await recorders[0].say_until(
                        kind, payload, lambda w=why: refusals(gate, w), times=REPEATED
                    )
                await gets_through(publisher, client)

    assert len(named(gate, "gateway.moving")) == moved
    assert client.link.counters.attempts == 1
    assert not [each for agent in agents for each in refusals(agent, "gate")]


async def test_a_collector_that_has_the_federations_key_follows_signed_guides_only(
    plain, office, tmp_path
):
    brokers, agents = await pair(plain, office)
    public = json.dumps(str(office.folder / "federation.pub"))
    sections = f"[keys]\nfederation_files = [{public}]\n"
    forger = Recorder(brokers[0].port)
    subscriber = Subscriber(brokers[1].port, "a/#", client_id="sub", qos=1)
    publisher = Publisher(brokers[0].port, "a/b", client_id="pub", qos=1)

    async def known():
        return {each["url"]: each["id"] for each in (await collector.status())["brokers"]}

    async def believed():
        return (await known()).get(brokers[0].url) == 1

    async with (
        running(forger, subscriber, publisher),
        CollectorProcess(tmp_path / "collector", brokers[0].url, sections=sections) as collector,
    ):
        await until(believed, "its guide is believed")
        elsewhere = (GuideBroker(1, brokers[0].url), GuideBroker(9, "mqtt://localhost:9"))
        forged = Guide(1, "fed", 1, 1, 2**60, 1, elsewhere)
        why = "agent 1 without its signature"
        genuine = forger.guides("up")[-1]
        await gets_through(publisher, subscriber)
        watched = (*agents, collector)
        async with undisturbed("13 guide", publisher, subscriber, processes=watched):
            await forger.say_until("guide", encode(forged), lambda: refusals(collector, why))
            for topic, payload in forgeries("guide", forged, genuine, to=NOBODY):
                await until(partial(forger.link.publish, topic, payload), "there is room")
                await asyncio.sleep(0)
            await until(lambda: refusals(collector, "is wrong"), "they are refused")
            await gets_through(publisher, subscriber)

        assert "mqtt://localhost:9" not in await known()

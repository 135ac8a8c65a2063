"""A gateway whose clients' topics belong to two brokers, which they take for one."""

import asyncio
import contextlib
import os
import random
from itertools import product

import aiomqtt
import pytest

from federator.gateway import wire
from federator.gateway.wire import V5, V311, Kind, Property
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from tests.real.gateway.clients import V5 as PAHO_V5
from tests.real.gateway.clients import V311 as PAHO_V311
from tests.real.gateway.clients import GatewayClient, flowing, grow
from tests.real.gateway.raw import Raw, connect
from tests.real.plain_agents import Plain, eventually, linked
from tests.real.polling import until

CENTRAL, EDGE = 1, 2
EDGES = ("edge/#", "+/hot")
TOPICS = ("edge/1", "edge/a/b", "a/hot", "a", "a/b")
FILTERS = ("#", "+/+", "edge/#", "edge/1", "+/hot", "a/#", "a", "a/b", "nobody")
DIALOGUES = int(os.environ.get("DIALOGUES", "4"))
SENTENCES = 25
STEPS = 5
QUIET_S = 0.1
HASTY = {"failover": {"settle_ms": 0}}


def config(brokers, **more):
    sections = {"attachment": {"assign": [f"*={CENTRAL}"]}, **more}
    return GatewayConfig("gate", brokers, federation="fed", more=sections, upstreams={EDGE: EDGES})


@contextlib.asynccontextmanager
async def split_gateway(folder, central, edge, **more):
    brokers = {CENTRAL: central.url, EDGE: edge.url}
    async with GatewayProcess(folder / "gateway", config(brokers, **more)) as gateway:
        yield gateway
        assert "Traceback" not in gateway.log_path.read_text()


class Speaker(Raw):
    """A client that answers as MQTT asks, and writes down what it hears."""

    def __init__(self):
        super().__init__()
        self.came = {}
        self._pongs = 0

    async def say(self, packet):
        """Say it, and wait until nothing more can come of it: QoS 2 both ways, step by step."""
        self.writer.write(packet)
        for _ in range(STEPS):
            pongs = self._pongs
            self.writer.write(wire.PINGREQ)
            await self.until(lambda n=pongs: self._pongs > n)

    def hear(self, packet):
        kind, version = packet[0] & 0xF0, self.version
        if kind == Kind.PUBLISH:
            topic, payload, properties = wire.read_payload(packet, version)
            qos = packet[0] & wire.QOS
            told = payload, bool(packet[0] & wire.RETAIN), properties
            self.came.setdefault((topic, qos), []).append(told)
            if qos:
                packet_id, _ = wire.publish_id(packet, wire.only(packet))
                self._ack(Kind.PUBACK if qos == 2 else Kind.PUBREC, packet_id)
        elif kind in (Kind.PUBREC, Kind.PUBREL):
            packet_id, _ = wire.read_ack(packet, wire.only(packet), version)
            self._ack(Kind.PUBREL if kind == Kind.PUBREC else Kind.PUBCOMP, packet_id)
        elif kind == Kind.PINGRESP:
            self._pongs += 1
        else:
            super().hear(packet)

    def _ack(self, kind, packet_id):
        self.writer.write(wire.write_ack(kind, packet_id, self.version))


def sentence(rng, version, number):
    """One packet of a client."""
    match rng.randrange(6):
        case 0 | 1 | 2:
            return wire.write_publish(
                rng.choice(TOPICS),
                b"%d" % number,
                version=version,
                qos=rng.randrange(3),
                retain=rng.random() < 0.2,
                packet_id=number,
            )
        case 3 | 4:
            options = rng.randrange(3)
            properties = ()
            if version == V5:
                options |= rng.choice((0, wire.NO_LOCAL, wire.RETAIN_AS_PUBLISHED, 0x10, 0x20))
                properties = ((Property.SUBSCRIPTION_ID, number),) if rng.random() < 0.3 else ()
            wish = tuple((each, options) for each in rng.sample(FILTERS, rng.randrange(1, 3)))
            return wire.write_request(wire.Subscribe(number, wish, properties), version)
        case _:
            gone = tuple(rng.sample(FILTERS, 2))
            return wire.write_request(wire.Unsubscribe(number, gone), version)


async def dialogue(port, seed, version):
    """All that a client hears in two connections, by topic and QoS, and its answers."""
    rng = random.Random(seed)
    told = []
    clean = rng.random() < 0.5
    for connection in range(2):
        speaker = Speaker()
        hello = connect(version, clean=clean, keep_alive=0)
        told.append((await speaker.begin(port, hello)).session_present)
        for number in range(SENTENCES):
            await speaker.say(sentence(rng, version, 1 + number + connection * SENTENCES))
        await speaker.leave()
        told += speaker.came, sorted(speaker.heard)
    blank = Speaker()
    await blank.open(port, connect(version, keep_alive=0))
    for topic in TOPICS:  # nothing is left for the next dialogue
        await blank.say(wire.write_publish(topic, b"", version=version, retain=True))
    await blank.leave()
    return told


@pytest.fixture
async def pair(start_broker):
    """The central broker and the edge, without agents."""
    return await start_broker(), await start_broker()


@pytest.fixture
async def gateway(pair, tmp_path):
    """Before these two."""
    async with split_gateway(tmp_path, *pair, **HASTY) as started:
        yield started


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_client_of_two_brokers_hears_what_a_single_one_says(broker, gateway, version):
    for seed in range(DIALOGUES):
        directly, through = await asyncio.gather(
            dialogue(broker.port, seed, version),
            dialogue(gateway.port, seed, version),
        )

        assert through == directly, f"dialogue {seed}"


async def test_each_publication_goes_to_the_owner_of_its_topic_and_nowhere_else(pair, gateway):
    at_central, at_edge = (GatewayClient(each.port, "witness", subscribes=("#",)) for each in pair)
    client = GatewayClient(gateway.port, "c", subscribes=("#",))
    async with at_central, at_edge, client:
        for topic in TOPICS:
            await client.client.publish(topic, topic, qos=1)

        await until(lambda: client.came.total() == len(TOPICS), "all of it comes, once")
        owned = {"edge/1", "edge/a/b", "a/hot"}
        await until(lambda: set(at_edge.came) == owned, "the edge has its own")
        await until(lambda: set(at_central.came) == {*TOPICS} - owned, "the rest is central")


@pytest.fixture
async def federated(tmp_path):
    """The central broker and the edge, with agents, and a gateway."""
    async with Plain(tmp_path) as plain:
        central, edge = await plain.broker(), await plain.broker()
        await plain.agent(CENTRAL, central)
        agent = await plain.agent(EDGE, edge, central.url)
        await eventually(agent, linked(CENTRAL), "links")
        async with split_gateway(tmp_path, central, edge) as gateway:
            yield {CENTRAL: central, EDGE: edge}, gateway


@pytest.mark.parametrize("version", [PAHO_V311, PAHO_V5])
@pytest.mark.parametrize("killed", [CENTRAL, EDGE])
async def test_whichever_of_the_two_is_killed_its_clients_notice_and_miss_nothing(
    federated, killed, version
):
    brokers, gateway = federated
    subscriber = GatewayClient(
        gateway.port, "s", version=version, subscribes=("#",), persistent=True
    )
    one, other = (
        GatewayClient(gateway.port, "p1", version=version),
        GatewayClient(gateway.port, "p2"),
    )
    topics = {one: "edge/1", other: "a/b"}
    pairs = product([subscriber], topics)
    async with flowing(pairs, topics, rate_hz=100, first=150) as settled:
        assert set(subscriber.came.values()) == {1}, "once, though both brokers carry them"

        brokers[killed].kill9()
        await grow(one.acknowledged, other.acknowledged, by=100)

        await settled()

        async def all_elsewhere():
            rows = (await gateway.clients()).values()
            return {row["broker"] for row in rows} == {CENTRAL + EDGE - killed}

        await until(all_elsewhere, "all are attached to the other one")


async def test_at_qos_2_nothing_is_lost_and_what_the_living_broker_owns_comes_once(federated):
    brokers, gateway = federated
    port = gateway.port
    subscriber = GatewayClient(port, "s", version=PAHO_V5, subscribes=("#",), qos=2)
    one, other = (GatewayClient(port, name, qos=2) for name in ("p1", "p2"))
    topics = {one: "edge/1", other: "a/b"}
    pairs = product([subscriber], topics)
    async with flowing(pairs, topics, rate_hz=25, first=25) as settled:
        brokers[EDGE].kill9()
        await grow(one.acknowledged, other.acknowledged, by=25)

        await settled()
        assert {subscriber.came[payload] for payload in other.acknowledged} == {1}


async def test_what_both_brokers_kept_for_a_client_that_was_away_comes_when_it_returns(
    pair, gateway
):
    central, edge = pair
    away = Speaker()
    await away.open(gateway.port, connect(V5, clean=False))
    await away.say(wire.write_request(wire.Subscribe(1, (("#", 2),)), V5))
    await away.leave()
    for broker, topic in ((central, "a"), (edge, "edge/1")):
        async with aiomqtt.Client("127.0.0.1", broker.port) as other:
            await other.publish(topic, b"missed", qos=1)

    back = Speaker()
    connack = await back.begin(gateway.port, connect(V5, clean=False))
    await back.say(wire.PINGREQ)

    assert connack.session_present
    assert {topic for topic, _ in back.came} == {b"a", b"edge/1"}
    await back.leave()


async def test_a_session_that_one_broker_lost_is_refused_once_and_then_new(pair, gateway):
    _, edge = pair
    first = Speaker()
    await first.open(gateway.port, connect(V311, clean=False))
    await first.say(wire.write_request(wire.Subscribe(1, (("#", 1),)), V311))
    await first.leave()
    thief = Speaker()
    await thief.open(edge.port, connect(V311, "raw~federator-1"))
    await thief.leave()

    reasons, connack = [], None
    while len(reasons) < 20 and (connack is None or connack.reason):
        accepted = Speaker()
        connack = await accepted.begin(gateway.port, connect(V311, clean=False))
        reasons.append(connack.reason)
        if connack.reason:
            await accepted.close()
            await asyncio.sleep(QUIET_S)  # as clients do

    assert {*reasons[:-1]} == {wire.Reason.SERVER_UNAVAILABLE}
    assert not connack.reason
    assert not connack.session_present
    await accepted.say(wire.write_publish("a", b"", version=V311, qos=1, packet_id=1))
    assert accepted.came == {}, "no subscription is left"
    await accepted.leave()


async def test_the_will_of_a_client_that_vanishes_is_published_once(gateway):
    witness = GatewayClient(gateway.port, "witness", subscribes=("#",))
    wills = {"x": "edge/will", "y": "a/will"}
    async with witness:
        for name, topic in wills.items():
            _, writer = await asyncio.open_connection(gateway.host, gateway.port)
            will = wire.Will(topic, topic.encode(), 1, False)
            writer.write(wire.write_connect(wire.Connect(V311, name, True, 60, will)))
            clients = {}
            while name not in clients or clients[name]["state"] != "live":
                clients = await gateway.clients()
            writer.transport.abort()

        await until(lambda: set(witness.came) == set(wills.values()), "both wills come")
        await asyncio.sleep(QUIET_S)
        assert set(witness.came.values()) == {1}


async def test_who_comes_again_has_his_name_on_both_brokers(gateway):
    former = GatewayClient(gateway.port, "c", subscribes=("#",))
    latter = GatewayClient(gateway.port, "c", subscribes=("#",))
    async with former, latter:
        await until(lambda: former.error is not None, "the former hears of it")
        for topic in TOPICS:
            await latter.client.publish(topic, topic, qos=2)
        await until(lambda: set(latter.came) == {*TOPICS}, "the latter is served by both")

        assert latter.error is None
        assert set(await gateway.clients()) == {"c", "c~federator-1"}


async def test_a_client_that_speaks_to_one_broker_only_is_kept_by_the_other(gateway):
    reader, writer = await asyncio.open_connection(gateway.host, gateway.port)
    writer.write(wire.write_connect(wire.Connect(V311, "c", True, 1)))
    await reader.readexactly(4)
    wish = wire.Subscribe(1, (("edge/1", 0),))
    writer.write(wire.write_request(wish, V311))
    await reader.readexactly(5)
    for _ in range(8):  # two and a half times what a broker waits
        writer.write(wire.write_publish("a", b"", version=V311))
        await asyncio.sleep(0.5)
    writer.write(wire.write_publish("edge/1", b"x", version=V311))

    assert await asyncio.wait_for(reader.readexactly(2), 5) == b"\x30\x09"
    writer.close()

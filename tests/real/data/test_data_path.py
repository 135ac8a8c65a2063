"""Data paths over real brokers, with routes set by hand: what arrives is what was published."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiomqtt
import mqtt5
import pytest
from mqtt5 import PublishPacket, QoS, RetainHandling, TopicFilter

from federator.config.sections import CustodySettings
from federator.protocol.data.plane import DataPlane
from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.types import BrokerId, Epoch, Millis, Now
from federator.runtime.custody.stores import CustodyStores
from federator.runtime.data.data_path import CustodyMessenger, DataPath
from federator.runtime.mqtt.link import Endpoint, Inbound, LinkObserver, MqttLink
from federator.runtime.mqtt.wire import packet_id_at
from federator.runtime.process.clocks import monotonic_ms, wall_clock_us
from lab.grid.processes.broker import BrokerProcess
from tests.real.conftest import StartBroker
from tests.real.polling import until

DATA_TOPIC = "$fed/fed/data"
NOW = Now(Millis(0), 0)


class Client(LinkObserver):
    """One connection; keeps the bytes of every PUBLISH it gets."""

    def __init__(self, broker: BrokerProcess, client_id: str, *, acknowledge: bool = True) -> None:
        self.received: list[bytes] = []
        self.downs = 0
        self.link = MqttLink(
            Endpoint(broker.host, broker.port), self, client_id=client_id, acknowledge=acknowledge
        )

    def on_down(self, link: MqttLink, reason: str) -> None:
        self.downs += 1

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        self.received += [bytes(chunk[start:end]) for _, start, end in publishes]

    def publish(self, packet: PublishPacket) -> None:
        wire = bytearray(packet.write())
        if packet.qos == QoS.AT_MOST_ONCE:
            assert self.link.write_packets([bytes(wire)], 1)
        else:
            assert self.link.publish_packet(wire, packet_id_at(wire), int(packet.qos))

    async def has_received(self, count: int) -> None:
        await until(lambda: len(self.received) >= count, f"{count} have arrived")

    @property
    def packets(self) -> list[PublishPacket]:
        parsed = [mqtt5.read(memoryview(wire))[0] for wire in self.received]
        return [packet for packet in parsed if isinstance(packet, PublishPacket)]


class DataClient(Client):
    """An agent's data connection."""

    def __init__(self, broker: BrokerProcess, client_id: str, path: DataPath) -> None:
        super().__init__(broker, client_id, acknowledge=False)
        self.path = path

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        self.path.on_publishes(chunk, publishes)
        ids = [(p.packet_id, int(p.qos)) for p, _, _ in publishes if p.packet_id is not None]
        self.path.acknowledge(link, ids)


@dataclass
class Federation:
    """Brokers numbered from 1 with a data path beside each, and clients."""

    brokers: list[BrokerProcess]
    tasks: asyncio.TaskGroup
    folder: Path
    running: list[asyncio.Task[None]] = field(default_factory=list)
    paths: dict[int, DataPath] = field(default_factory=dict)
    data: dict[int, DataClient] = field(default_factory=dict)

    async def connected(self, client: Client) -> None:
        self.running.append(self.tasks.create_task(client.link.run()))
        await until(lambda: client.link.connected, f"{client.link.client_id} is connected")

    async def client(self, number: int, name: str, *filters: str) -> Client:
        """A client of broker ``number`` that subscribes as our data connections do."""
        client = Client(self.brokers[number - 1], name)
        await self.connected(client)
        client.link.subscribe(
            TopicFilter(filter, retain_handling=RetainHandling.SEND_NEVER) for filter in filters
        )
        await until(lambda: client.link.subscribed, f"{name} is subscribed")
        return client

    async def agent(self, number: int, routes: dict[str, FilterRoute]) -> None:
        """Start the data path beside broker ``number`` and connect it to its next hops."""
        stores = CustodyStores(self.folder / str(number), CustodySettings())
        plane = DataPlane(
            self_id=BrokerId(number),
            epoch=Epoch(1),
            federation="fed",
            forwarder=Forwarder(),
            disk=stores,
            outlet=CustodyMessenger(lambda neighbour, request: None),
            now=Now(monotonic_ms(), wall_clock_us()),
        )
        path = self.paths[number] = DataPath(plane, stores)
        for filter, route in routes.items():
            path.set_route(filter, route)
        for hop in sorted({hop for route in routes.values() for hop in route.next_hops}):
            outgoing = Client(self.brokers[hop - 1], f"federator-{number}-to-{hop}")
            await self.connected(outgoing)
            path.reach(hop, outgoing.link)
        for sender in range(1, len(self.brokers) + 1):
            plane.senders.hear(BrokerId(sender), True, NOW)
        local = self.data[number] = DataClient(
            self.brokers[number - 1], f"federator-{number}-data", path
        )
        plane.delivery.link = local.link
        await self.connected(local)
        change = plane.forwarder.cover_change()
        local.link.subscribe(
            [
                TopicFilter(DATA_TOPIC, max_qos=QoS.AT_LEAST_ONCE),
                *(
                    TopicFilter(filter, no_local=True, retain_handling=RetainHandling.SEND_NEVER)
                    for filter in change.subscribe
                ),
            ]
        )
        await until(lambda: local.link.subscribed, f"agent {number} is subscribed")


@contextlib.asynccontextmanager
async def federation(brokers: list[BrokerProcess], folder: Path) -> AsyncIterator[Federation]:
    async with asyncio.TaskGroup() as tasks:
        built = Federation(brokers, tasks, folder)
        try:
            yield built
        finally:
            for task in built.running:
                task.cancel()


def hop(*next_hops: int, local: bool = False, wanted: bool = True) -> FilterRoute:
    return FilterRoute(
        local=local, wanted=wanted, next_hops=tuple(BrokerId(hop) for hop in next_hops)
    )


@contextlib.asynccontextmanager
async def two_brokers(
    start_broker: StartBroker, tmp_path: Path, *filters: str
) -> AsyncIterator[Federation]:
    """Publishers at broker 1, subscribers at broker 2."""
    async with federation([await start_broker(), await start_broker()], tmp_path) as built:
        await built.agent(2, {filter: hop(local=True, wanted=False) for filter in filters})
        await built.agent(1, {filter: hop(2) for filter in filters})
        yield built


def publication(topic: str, payload: bytes, *, qos: int = 0) -> PublishPacket:
    return PublishPacket(topic, payload, qos=QoS(qos), packet_id=1 if qos else None)


def all_kinds(qos: int) -> list[PublishPacket]:
    """Publications that each stress something else."""
    kinds: list[dict[str, object]] = [
        {"topic": "t/plain", "payload": b"x" * 64},
        {"topic": "t/empty", "payload": b""},
        {"topic": "t/zażółć/温度/🌡", "payload": "gęślą".encode()},
        {"topic": "t/large", "payload": bytes(range(256)) * 4096},
        {"topic": "t/retained", "payload": b"kept", "retain": True},
        {"topic": "t//", "payload": b"empty levels"},
        {
            "topic": "t/properties",
            "payload": b"{}",
            "payload_format_indicator": 1,
            "message_expiry_interval": 1_000_000,
            "content_type": "application/json",
            "response_topic": "t/answers/ü",
            "correlation_data": b"\x00\xff\x01",
            "user_properties": [("a", "1"), ("a", "2"), ("", ""), ("ключ", "значение")],
        },
        {"topic": "t/plain", "payload": b"the end"},
    ]
    return [PublishPacket(**kind, qos=QoS(qos), packet_id=1 if qos else None) for kind in kinds]


def as_published(packet: PublishPacket) -> tuple[object, ...]:
    """Everything a subscriber sees, except the identifier and the seconds until expiry."""
    return (
        packet.topic,
        packet.payload,
        int(packet.qos),
        packet.retain,
        packet.payload_format_indicator,
        packet.message_expiry_interval is None,
        packet.content_type,
        packet.response_topic,
        packet.correlation_data,
        packet.user_properties,
    )


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_every_kind_of_publication_arrives_as_published(
    start_broker: StartBroker, tmp_path: Path, qos: int
):
    async with two_brokers(start_broker, tmp_path, "t/#") as federated:
        subscriber = await federated.client(2, "subscriber", "t/#")
        publisher = await federated.client(1, "publisher")
        published = all_kinds(qos)

        for packet in published:
            publisher.publish(packet)
        await subscriber.has_received(len(published))

        assert list(map(as_published, subscriber.packets)) == list(map(as_published, published))
        expiry = subscriber.packets[6].message_expiry_interval
        assert expiry is not None
        assert 999_000 < expiry <= 1_000_000
        counters = federated.paths[2].counters
        assert counters.delivered_publications == len(published)
        assert counters.malformed_frames == counters.dropped == 0


async def test_a_retained_publication_is_there_for_who_comes_later(
    start_broker: StartBroker, tmp_path: Path
):
    async with two_brokers(start_broker, tmp_path, "t/#") as federated:
        publisher = await federated.client(1, "publisher")
        publisher.publish(PublishPacket("t/state", b"on", retain=True))
        await until(lambda: federated.paths[2].counters.delivered_publications == 1, "it arrived")

        broker = federated.brokers[1]
        async with aiomqtt.Client(broker.host, broker.port) as late:
            await late.subscribe("t/#")
            message = await anext(late.messages)

        assert (str(message.topic), message.payload, message.retain) == ("t/state", b"on", True)


async def test_clients_of_3_1_1_reach_each_other_with_every_qos(
    start_broker: StartBroker, tmp_path: Path
):
    async with two_brokers(start_broker, tmp_path, "t/+") as federated:
        here, there = federated.brokers
        v3 = aiomqtt.ProtocolVersion.V311
        async with (
            aiomqtt.Client(there.host, there.port, protocol=v3) as subscriber,
            aiomqtt.Client(here.host, here.port, protocol=v3) as publisher,
        ):
            await subscriber.subscribe("t/+", qos=2)
            for qos in (0, 1, 2):
                await publisher.publish(f"t/{qos}", b"%d" % qos, qos=qos)
            arrived = {
                str((message := await anext(subscriber.messages)).topic): (
                    message.payload,
                    message.qos,
                )
                for _ in range(3)
            }

        assert arrived == {"t/0": (b"0", 0), "t/1": (b"1", 1), "t/2": (b"2", 2)}


async def test_overlapping_filters_deliver_once(start_broker: StartBroker, tmp_path: Path):
    async with two_brokers(start_broker, tmp_path, "t/#", "t/+", "t/a") as federated:
        subscriber = await federated.client(2, "subscriber", "t/a")
        publisher = await federated.client(1, "publisher")

        for n in range(100):
            publisher.publish(PublishPacket("t/a", b"%d" % n))
        await subscriber.has_received(100)
        publisher.publish(PublishPacket("t/a", b"last"))
        await until(lambda: subscriber.packets[-1].payload == b"last", "the last has arrived")

        expected = [b"%d" % n for n in range(100)] + [b"last"]
        assert [packet.payload for packet in subscriber.packets] == expected


async def test_over_two_paths_each_publication_is_delivered_once(
    start_broker: StartBroker, tmp_path: Path
):
    async with federation([await start_broker() for _ in range(3)], tmp_path) as federated:
        await federated.agent(3, {"t": hop(local=True, wanted=False)})
        await federated.agent(2, {"t": hop(1, 3, local=True)})
        await federated.agent(1, {"t": hop(2, 3)})
        middle = await federated.client(2, "middle", "t")
        end = await federated.client(3, "end", "t")
        publisher = await federated.client(1, "publisher")

        for n in range(50):
            publisher.publish(publication("t", b"%d" % n, qos=n % 3))
        suppressed = federated.paths[3].counters
        await until(lambda: suppressed.duplicates_suppressed >= 50, "both copies have come")

        for subscriber in (middle, end):
            await subscriber.has_received(50)
            payloads = sorted(int(packet.payload) for packet in subscriber.packets)
            assert payloads == list(range(50))
        assert suppressed.duplicates_suppressed == 50


@pytest.mark.parametrize(("qos", "count"), [(0, 5_000), (1, 900), (2, 900)])
async def test_a_burst_arrives_whole_and_in_order(
    start_broker: StartBroker, tmp_path: Path, qos: int, count: int
):
    async with two_brokers(start_broker, tmp_path, "t/#") as federated:
        subscriber = await federated.client(2, "subscriber", "t/#")
        publisher = await federated.client(1, "publisher")

        for n in range(count):
            publisher.publish(publication(f"t/{n % 7}", b"%d" % n, qos=qos))
        await subscriber.has_received(count)

        assert [int(packet.payload) for packet in subscriber.packets] == list(range(count))


async def test_garbage_on_the_data_topic_disturbs_nothing(
    start_broker: StartBroker, tmp_path: Path
):
    async with two_brokers(start_broker, tmp_path, "t/#") as federated:
        subscriber = await federated.client(2, "subscriber", "t/#")
        publisher = await federated.client(1, "publisher")
        vandal = await federated.client(2, "vandal")
        publisher.publish(PublishPacket("t/first", b""))
        await subscriber.has_received(1)

        for n in range(200):
            vandal.publish(PublishPacket(DATA_TOPIC, bytes((n * k) % 256 for k in range(n))))
        counters = federated.paths[2].counters
        await until(lambda: counters.malformed_frames == 200, "all garbage was counted")
        publisher.publish(PublishPacket("t/second", b""))
        await subscriber.has_received(2)

        assert federated.data[2].downs == 0
        assert [packet.topic for packet in subscriber.packets] == ["t/first", "t/second"]

"""What a client publishes on one broker arrives three brokers further as it was published.

Real brokers, real agents, and the clients that people use (paho). docs/protocol.md section 8.
"""

import asyncio
import contextlib
import queue
import socket
import uuid

import paho.mqtt.client as paho
import pytest
import pytest_asyncio
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from federator.protocol.types import BrokerId
from lab.grid.running import RunningGrid
from lab.grid.topology import Grid, Link
from tests.real.plain_agents import QUICK
from tests.real.polling import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIRST, LAST = 0, 3
ARRIVES_S = 20.0
WAITS_S = 3.0
SILENCE_S = 0.5  # after which something that must not come is taken not to come


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def line(tmp_path_factory):
    folder = tmp_path_factory.mktemp("line")
    async with RunningGrid(Grid(1, 4, 0), folder, link_delay_ms=1, broker_options=QUICK) as grid:
        yield grid


class Client:
    """A connected paho client; ``inbox`` gets its messages."""

    def __init__(self, port, *, protocol=paho.MQTTv5, will=None):
        self.inbox = queue.Queue()
        self.paho = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=protocol)
        self.paho.on_message = lambda client, data, message: self.inbox.put(message)
        if will is not None:
            self.paho.will_set(*will)
        self.paho.connect("127.0.0.1", port)
        self.paho.loop_start()

    def get(self):
        return self.inbox.get(timeout=ARRIVES_S)

    def nothing_more_comes(self):
        with contextlib.suppress(queue.Empty):
            raise AssertionError(f"came too: {self.inbox.get(timeout=SILENCE_S).topic}")

    def close(self):
        self.paho.disconnect()
        self.paho.loop_stop()


@pytest_asyncio.fixture(loop_scope="module")
async def client(line):
    """``client(broker)`` connects; all are closed when the test ends."""
    made = []

    def connect(broker, **options):
        made.append(Client(line.brokers[broker].port, **options))
        return made[-1]

    yield connect
    for one in made:
        one.close()


@pytest_asyncio.fixture(loop_scope="module")
async def subscriber(line, client):
    """``await subscriber(filter)`` on the last broker, known to the first."""

    async def subscribe(*filters, broker=LAST, knows=FIRST, qos=2, protocol=paho.MQTTv5):
        made = client(broker, protocol=protocol)
        for topic_filter in filters:
            if protocol == paho.MQTTv5:
                options = SubscribeOptions(qos=qos, retainAsPublished=True)
                made.paho.subscribe(topic_filter, options=options)
            else:
                made.paho.subscribe(topic_filter, qos)
        await known(line, filters, at=knows)
        return made

    return subscribe


async def known(line, filters, *, at):
    def missing(statuses):
        ways = {m["filter"] for m in statuses[at]["meshes"] if m["next_hops"]}
        return f"{set(filters) - ways} unknown at {at}" if set(filters) - ways else None

    await line.until(missing)


def unique(text="t"):
    """A topic of its own for each test: the grid is shared."""
    return f"{text}/{uuid.uuid4().hex[:8]}"


def all_properties():
    made = Properties(PacketTypes.PUBLISH)
    made.PayloadFormatIndicator = 1
    made.MessageExpiryInterval = 3_600
    made.ContentType = "text/plain; charset=utf-8"
    made.ResponseTopic = "answers/7"
    made.CorrelationData = b"\x00\xff\x01"
    made.UserProperty = [("b", "2"), ("a", "1"), ("b", "again"), ("", "ünïcode")]
    return made


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
async def test_qos_retain_and_all_properties_arrive_as_published(client, subscriber, qos, retain):
    topic = unique()
    far = await subscriber(topic)

    client(FIRST).paho.publish(topic, "grüß", qos, retain, properties=all_properties())

    got = far.get()
    assert (got.topic, got.payload, got.qos, got.retain) == (topic, "grüß".encode(), qos, retain)
    sent = all_properties().json()
    came = got.properties.json()
    assert sent["MessageExpiryInterval"] - 5 <= came.pop("MessageExpiryInterval") <= 3_600
    sent.pop("MessageExpiryInterval")
    assert came == sent
    far.nothing_more_comes()


@pytest.mark.parametrize("granted", [0, 1, 2])
async def test_a_subscriber_gets_no_more_than_its_own_qos(client, subscriber, granted):
    topic = unique()
    far = await subscriber(topic, qos=granted)

    client(FIRST).paho.publish(topic, b"x", qos=2)

    assert far.get().qos == granted
    far.nothing_more_comes()


V3, V5 = paho.MQTTv311, paho.MQTTv5


@pytest.mark.parametrize(("sender", "receiver"), [(V3, V5), (V5, V3), (V3, V3)])
async def test_the_two_protocol_versions_meet(client, subscriber, sender, receiver):
    topic = unique()
    far = await subscriber(topic, protocol=receiver)
    publisher = client(FIRST, protocol=sender)

    for qos in (0, 1, 2):
        publisher.paho.publish(topic, b"hello", qos)

        got = far.get()
        assert (got.topic, got.payload, got.qos) == (topic, b"hello", qos)


@pytest.mark.parametrize("size", [0, 1, 65_535, 262_144, 1_048_576])
async def test_payloads_of_any_size_arrive_whole(client, subscriber, size):
    topic = unique()
    payload = bytes(i % 251 for i in range(size))
    far = await subscriber(topic)

    for qos in (0, 1):
        client(FIRST).paho.publish(topic, payload, qos)

        assert far.get().payload == payload


@pytest.mark.parametrize(
    "topic", ["größe/温度/🌡", "with space/ and more", "/", "a//b", "x" * 900, "/".join("d" * 100)]
)
async def test_odd_topics_arrive(client, subscriber, topic):
    far = await subscriber(topic)

    client(FIRST).paho.publish(topic, b"x", qos=1)

    assert far.get().topic == topic


async def test_the_longest_topic_arrives(client, subscriber):
    topic = "long/" + "x" * 65_530
    far = await subscriber("long/#")

    for qos in (0, 1):
        client(FIRST).paho.publish(topic, b"x", qos)

        assert far.get().topic == topic


async def test_a_filter_longer_than_a_log_line_is_served_all_the_same(line, client):
    topic = "beyond/" + "y" * 1_500
    far = client(LAST)
    far.paho.subscribe(topic, 1)
    await known(line, ["beyond/#"], at=FIRST)  # all that the cut line tells for sure

    client(FIRST).paho.publish(topic, b"x", qos=1)

    assert far.get().topic == topic


async def test_overlapping_filters_of_two_clients_deliver_once_to_each(client, subscriber):
    topic = unique("plant")
    exact = await subscriber(topic)
    plus = await subscriber("plant/+")
    hash_ = await subscriber("plant/#")

    client(FIRST).paho.publish(topic, b"x", qos=1)

    for far in (exact, plus, hash_):
        assert far.get().topic == topic
        far.nothing_more_comes()


async def test_one_client_with_overlapping_filters_gets_what_its_broker_gives(client, subscriber):
    topic = unique("over")
    far = await subscriber(topic, "over/#")
    beside = client(LAST)

    client(FIRST).paho.publish(topic, b"from afar", qos=1)
    beside.paho.publish(topic, b"from here", qos=1)

    came = [far.get().payload for _ in range(4)]
    assert sorted(came) == [b"from afar"] * 2 + [b"from here"] * 2, "2.0: one copy per filter"


@pytest.mark.parametrize("levels", [(0, 1), (2,)])
async def test_publications_of_one_client_stay_in_order(client, subscriber, levels):
    topic = unique()
    far = await subscriber(topic)
    publisher = client(FIRST)

    for number in range(1_000):
        publisher.paho.publish(topic, str(number), qos=levels[number % len(levels)])

    came = [int(far.get().payload) for _ in range(1_000)]
    for place in range(len(levels)):
        of_qos = [n for n in came if n % len(levels) == place]
        assert of_qos == sorted(of_qos)
    far.nothing_more_comes()


async def test_what_waits_for_a_cut_link_comes_out_as_old_as_it_is(line, client, subscriber):
    topic = unique()
    far = await subscriber(topic)
    publisher = client(FIRST)
    publisher.paho.publish(topic, b"before", qos=1)
    assert far.get().payload == b"before"
    last_link = Link(BrokerId(LAST - 1), BrokerId(LAST))
    await line.order("cut", last_link)
    for payload, expiry_s in ((b"long", 3_600), (b"short", 1), (b"for ever", None)):
        properties = Properties(PacketTypes.PUBLISH)
        if expiry_s is not None:
            properties.MessageExpiryInterval = expiry_s
        publisher.paho.publish(topic, payload, 1, properties=properties)
    await asyncio.sleep(WAITS_S)
    await line.order("heal", last_link)

    aged, ageless = far.get(), far.get()

    assert (aged.payload, ageless.payload) == (b"long", b"for ever")
    assert 3_600 - ARRIVES_S <= aged.properties.MessageExpiryInterval <= 3_600 - int(WAITS_S)
    assert not hasattr(ageless.properties, "MessageExpiryInterval")
    far.nothing_more_comes()


async def test_a_request_is_answered_from_another_broker(line, client, subscriber):
    service_topic, reply_topic = unique("service"), unique("reply")
    service = await subscriber(service_topic)
    asker = await subscriber(reply_topic, broker=FIRST, knows=LAST)
    question = Properties(PacketTypes.PUBLISH)
    question.ResponseTopic = reply_topic
    question.CorrelationData = b"42"
    client(FIRST).paho.publish(service_topic, b"?", qos=1, properties=question)

    asked = service.get()
    answer = Properties(PacketTypes.PUBLISH)
    answer.CorrelationData = asked.properties.CorrelationData
    service.paho.publish(asked.properties.ResponseTopic, b"!", qos=1, properties=answer)

    got = asker.get()
    assert (got.payload, got.properties.CorrelationData) == (b"!", b"42")


async def test_a_will_is_heard_on_other_brokers(client, subscriber):
    topic = unique("will")
    far = await subscriber(topic)
    dying = client(FIRST, will=(topic, b"gone", 1))
    await until(dying.paho.is_connected, "connected")

    dying.paho.loop_stop()
    dying.paho.socket().shutdown(socket.SHUT_RDWR)

    assert far.get().payload == b"gone"


async def test_topic_aliases_end_at_the_first_broker(client, subscriber):
    topic = unique()
    far = await subscriber(topic)
    publisher = client(FIRST)
    await until(publisher.paho.is_connected, "connected")
    aliased = Properties(PacketTypes.PUBLISH)
    aliased.TopicAlias = 1
    for payload in (b"1", b"2", b"3"):
        publisher.paho.publish(topic if payload == b"1" else "", payload, 1, properties=aliased)

    assert [(far.get().topic, p) for p in (b"1", b"2", b"3")] == [
        (topic, p) for p in (b"1", b"2", b"3")
    ]


async def test_dollar_topics_and_match_all_filters_stay_home(line, client):
    everything = client(LAST)
    everything.paho.subscribe([("#", 0), ("+/#", 0), ("$SYS/broker/uptime", 0), ("$fed/#", 0)])
    everything.paho.subscribe("$odd/#", 0)
    topic = unique("secret")

    publisher = client(FIRST)
    publisher.paho.publish(topic, b"x", qos=1)
    publisher.paho.publish("$odd/secret", b"x", qos=1)

    def kept_local(statuses):
        kept = statuses[LAST]["discovery"]["kept_local"]
        return None if {"#", "+/#"} <= set(kept) else f"kept local: {kept}"

    statuses = await line.until(kept_local)
    wanted = {m["filter"] for m in statuses[FIRST]["meshes"]}
    assert not [f for f in wanted if f.startswith(("$", "#", "+/#"))]
    with contextlib.suppress(queue.Empty):
        while True:
            assert everything.inbox.get(timeout=SILENCE_S).topic not in (topic, "$odd/secret")

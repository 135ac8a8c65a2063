"""A federation of three on brokers that allow exactly what ``federator doctor --acl`` prints."""

import asyncio
import contextlib
import json
import re

import mqtt5
import pytest

from federator.protocol.filters import matches
from federator.protocol.messages import json_codec
from federator.protocol.messages.operators import PageQuestion
from federator.protocol.messages.topics import (
    load_topic,
    metrics_again_topic,
    metrics_ask_topic,
    metrics_head_topic,
    nobodys_topic,
    page_topic,
    paged_topic,
    plan_topic,
)
from federator.protocol.telemetry.records import encode
from federator.protocol.telemetry.replay import Ask
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from tests.real.client import Client
from tests.real.flow import Publisher, Subscriber, running
from tests.real.logins import login, write_passwords, write_secret
from tests.real.observability.test_cli_agent import ran
from tests.real.plain_agents import eventually, linked
from tests.real.polling import until
from tests.real.steering.by_hand import plan

USERS = (
    *("federator", "federator-peer", "federator-gateway", "federator-collector"),
    *("federator-steerer", "federator-console", "alice", "eve"),
)
DEADLINE_S = 60.0
FED = "$fed/fed/"

NOT_ALWAYS_SAID = {
    # By doctor, drain and trace; when subscriptions change that overlap; when a gateway asks what
    # its clients missed; for who only dials.
    "federator": {
        f"{FED}outbox/+/+",
        *(f"{FED}data", f"{FED}doctor/+", f"{FED}drain", f"{FED}trace", f"{FED}traced/+"),
        *(f"{FED}cover", f"{FED}mark", f"{FED}fetched/+"),
    },
    # By Wills, as luck will have it, and by who only dials.
    "federator-peer": {f"{FED}ctl", f"{FED}repair", f"{FED}window"},
    # By those whose broker died, who were asked, or who share clients.
    "federator-gateway": {
        *(f"{FED}recall", f"{FED}recalled/+", f"{FED}claims", f"{FED}fetch", f"{FED}fetched/+"),
    },
}


def reader_at(port, user, *filters):
    """One user's connection."""
    return Client(port, f"client-{user}-{port}", *filters, qos=0, login=login(user))


@pytest.fixture
def secret_file(tmp_path):
    return write_secret(tmp_path / "secret")


@pytest.fixture
def passwords(tmp_path):
    return write_passwords(tmp_path / "passwords", *USERS)


@pytest.fixture
async def chain(plain, tmp_path, passwords, secret_file):
    """Brokers 1 - 2 - 3 with what the verb printed, and their agents."""
    us = {"username": "federator", "password_file": str(secret_file)}
    them = {"username": "federator-peer", "password_file": str(secret_file)}

    config = tmp_path / "doctor.toml"
    config.write_text('[broker]\nid = 2\nurl = "mqtt://b"\nusername = "federator"\n')
    code, printed, err = await ran("doctor", "--acl", "-c", str(config))
    assert (code, err) == (0, "")

    async def start(id):
        acl = tmp_path / f"acl-{id}"
        acl.write_text(printed.replace("/2\n", f"/{id}\n"))  # the topics that name a broker
        lines = (
            f"password_file {passwords}",
            f"acl_file {acl}",
            "log_type debug",
            "sys_interval 1",
        )
        return await plain.broker(allow_anonymous=False, extra_config=lines)

    brokers = one, two, three = await asyncio.gather(start(1), start(2), start(3))
    more = "[metrics]\nenabled = true\nflush_ms = 100\n"
    sections = {"broker": us, "links": them, "more": more}
    await asyncio.gather(
        plain.agent(2, two, **sections),
        plain.agent(1, one, two.url, **sections),
        plain.agent(3, three, two.url, **sections),
    )
    for agent, others in zip(plain.agents, ([1, 3], [2], [2]), strict=True):
        await eventually(agent, linked(*others), "linked", deadline_s=DEADLINE_S)
    return brokers


@contextlib.asynccontextmanager
async def gateway_at(folder, broker, secret_file):
    """A gateway of one broker, with a user of its own."""
    us = {"username": "federator-gateway", "password_file": str(secret_file)}
    config = GatewayConfig("door", {1: broker.url}, federation="fed", broker=us)
    gateway = GatewayProcess(folder / "gateway", config)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


def spoken(brokers):
    """What clients published on the brokers: (client, topic, allowed)."""
    line = re.compile(r"\d+: (Received|Denied) PUBLISH from (\S+) \(.*?, '(.*)', \.\.\. ")
    for broker in brokers:
        for found in line.finditer(broker.log_path.read_text()):
            if found[3] != nobodys_topic("fed"):  # which all are kept off, and ours try it
                yield found[2], found[3], found[1] == "Received"


def asked(brokers):
    """What clients subscribed on the brokers: (client, filter)."""
    line = re.compile(r"^\d+: (\S+) [012] (.+)$", re.MULTILINE)
    for broker in brokers:
        for found in line.finditer(broker.log_path.read_text()):
            yield found[1], found[2]


def granted(text, user):
    """The topics of one user in an acl_file, with its right."""
    part = text.split(f"\nuser {user}\n")[1].split("\n\n")[0]
    return {line.split(" ", 2)[2]: line.split(" ", 2)[1] for line in part.strip().split("\n")}


def role(client):
    if client.startswith("federator-gateway-"):
        return "federator-gateway"
    if re.match(r"federator-\d+-to-", client):
        return "federator-peer"
    return "federator" if client.startswith("federator-") else "client"


async def exercise(plain, brokers, folder, secret_file):
    """Everything that agents and gateways say to each other in the ordinary course of things."""
    one, _, three = brokers
    subscriber = Subscriber(three.port, "a/#", client_id="s", qos=1, login=login("alice"))
    publisher = Publisher(one.port, "a/b", client_id="p", rate_hz=50, qos=1, login=login("alice"))
    keeper = reader_at(one.port, "alice")
    async with (
        gateway_at(folder, one, secret_file) as gateway,
        running(subscriber, publisher, keeper),
    ):
        await until(lambda: len(subscriber.came) > 20, "data comes", deadline_s=DEADLINE_S)
        stands = max(subscriber.came)  # what was published before the mesh stood may be lost
        relay = plain.agents[0]
        relay.kill9()
        missed = publisher.sent
        await until(lambda: publisher.sent > missed + 50, "some are missed", deadline_s=DEADLINE_S)
        await relay.start()
        await until(lambda: subscriber.came[missed + 25], "repaired", deadline_s=DEADLINE_S)
        await until(lambda: keeper.link.connected, "connected", deadline_s=DEADLINE_S)
        keeper.link.write_packets(
            (mqtt5.PublishPacket("kept/value", b"42", retain=True).write(),), 1
        )
        late = reader_at(three.port, "alice", "kept/#")
        guest = Subscriber(gateway.port, "a/#", client_id="g", qos=1, login=login("alice"))
        writer = Publisher(
            gateway.port, "b", client_id="w", rate_hz=20, qos=1, login=login("alice")
        )
        marks = reader_at(one.port, "federator-gateway", f"{FED}taken/+")
        async with running(late, guest, writer, marks):
            await until(lambda: marks.came != [], "custody is told", deadline_s=DEADLINE_S)
            await until(lambda: late.came != [], "the retained value", deadline_s=DEADLINE_S)
            await until(lambda: len(guest.came) > 20, "data by a gateway", deadline_s=DEADLINE_S)
        publisher.pause()
        owed = set(range(stands, publisher.sent))
        await until(lambda: owed <= subscriber.came.keys(), "all came", deadline_s=DEADLINE_S)
    assert late.packets[0].payload == b"42"


async def read_metrics(broker):
    """As a collector: read what the spool holds, ask for it, and get it."""
    reader = reader_at(
        broker.port,
        "federator-collector",
        metrics_head_topic("fed"),
        metrics_again_topic("fed", "t"),
    )
    async with running(reader):
        await until(lambda: reader.came != [], "the head of the spool", deadline_s=DEADLINE_S)
        head = json.loads(reader.packets[-1].payload)
        ask = Ask(spool=head["spool"], first=head["last"], last=head["last"], to="t")
        reader.link.publish(metrics_ask_topic("fed"), encode(ask))
        await until(
            lambda: any(p.topic == metrics_again_topic("fed", "t") for p in reader.packets),
            "records again",
            deadline_s=DEADLINE_S,
        )


async def steer(broker, id_):
    """As a steerer: hold a plan without trees at the broker, and hear what its agent carries."""
    reader = reader_at(broker.port, "federator-steerer", load_topic("fed"), plan_topic("fed"))
    async with running(reader):
        await until(lambda: reader.link.subscribed, "it hears")
        reader.link.publish(plan_topic("fed"), plan(id_), qos=1)
        for topic in (plan_topic("fed"), load_topic("fed")):
            await until(
                lambda t=topic: any(p.topic == t for p in reader.packets),
                topic,
                deadline_s=DEADLINE_S,
            )


async def look(broker):
    """As a console: ask for a page, and get it."""
    answers = paged_topic("fed", "t")
    reader = reader_at(broker.port, "federator-console", answers)
    async with running(reader):
        await until(lambda: reader.link.subscribed, "it hears")
        question = PageQuestion(token="t", number=1, page="live")
        reader.link.publish(page_topic("fed"), json_codec.encode(question), qos=1)
        await until(lambda: reader.came != [], "the page", deadline_s=DEADLINE_S)


def assert_nothing_is_missing_or_useless(brokers, text):
    """Nobody of ours was denied anything, and each right is made use of."""
    said = list(spoken(brokers))
    assert not [each for each in said if not each[2]]
    heard = {(role(client), filter_) for client, filter_ in asked(brokers)}
    for user in USERS[:3]:
        grants = granted(text, user)
        ours = {topic for client, topic, _ in said if role(client) == user and topic[0] == "$"}
        useless = {
            topic
            for topic, right in grants.items()
            if right != "read" and topic[0] == "$" and topic not in NOT_ALWAYS_SAID[user]
            if not any(matches(topic, each) for each in ours)
        }
        assert not useless, user
        for who, filter_ in heard:
            plain = filter_.removeprefix("$share/federator/")
            if who == user and plain[0] == "$":
                rights = {r for t, r in grants.items() if t == plain or matches(t, plain)}
                assert rights & {"read", "readwrite"}, plain


async def attack(brokers, text):
    """A client says what it can where it must not: the topics it tried."""
    topics = {t for user in USERS[:6] for t in granted(text, user)}
    topics = sorted(t.replace("+", "x") for t in topics if t.startswith(FED))
    eve = reader_at(brokers[1].port, "eve", "$fed/#", "$SYS/#", "a")
    async with running(eve):
        await until(lambda: eve.link.subscribed, "subscribed", deadline_s=DEADLINE_S)
        for qos in (0, 1):
            for topic in topics:
                eve.link.publish(topic, b"\x00", qos=qos)
        eve.link.publish("a", b"the end", qos=1)
        await until(lambda: eve.came != [], "what all may", deadline_s=DEADLINE_S)
        await until(lambda: eve.link.unacknowledged == 0, "answered", deadline_s=DEADLINE_S)
    assert [packet.topic for packet in eve.packets] == ["a"]
    assert eve.link.counters.publishes_rejected == len(topics) > 25
    return topics


async def test_ours_need_nothing_that_is_not_in_it_and_clients_get_nowhere(
    chain, plain, tmp_path, secret_file
):
    text = (tmp_path / "acl-2").read_text()
    await exercise(plain, chain, tmp_path, secret_file)
    await read_metrics(chain[0])
    await steer(chain[0], 1)
    await look(chain[0])
    assert_nothing_is_missing_or_useless(chain, text.replace("/2\n", "/+\n"))

    tried = await attack(chain, text)

    denied = [topic for _, topic, allowed in spoken(chain) if not allowed]
    assert sorted(denied) == sorted(tried * 2)
    for agent in plain.agents:
        counters = (await agent.status())["counters"]
        assert not any(counters["control_malformed"].values())
        assert counters["data"]["malformed_frames"] == 0

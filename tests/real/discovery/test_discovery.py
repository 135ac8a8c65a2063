"""Subscription discovery on a real Mosquitto, with clients of three makes and both protocols."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from mqtt5 import TopicFilter
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions
from structlog.testing import capture_logs

from federator.config.sections import DiscoverySettings
from federator.protocol.discovery import LOG_TOPICS, SYS_TOPICS
from federator.runtime.discovery.service import FILE_NAME, Discovery
from federator.runtime.mqtt.link import Endpoint, Inbound, LinkObserver, MqttLink
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.relay_process import RelayProcess
from tests.real.conftest import StartBroker
from tests.real.polling import until

OWN_ID = "federator-7-ctl"
COUNTS_OFTEN = "sys_interval 1"
PACKETS = {"v3": paho.MQTTv311, "v5": paho.MQTTv5}


class Agent(LinkObserver):
    """The part of an agent that discovers: one control connection, and what it learned.

    Attributes:
        wanted: The filters wanted, put together from the changes it reported.
    """

    def __init__(self, broker: BrokerProcess, state_dir: Path, **settings: Any) -> None:
        state_dir.mkdir(exist_ok=True)
        self.others: list[MqttLink] = []  # our other connections to the broker
        self.wanted: set[str] = set()
        self.ever_widened = False
        self.times_down = 0
        self.heard: list[tuple[str, bytes]] = []
        self.discovery = Discovery(
            DiscoverySettings(**settings),
            federation="fed",
            own_id=OWN_ID,
            state_dir=state_dir,
            interest_changed=self._changed,
            control_filters=lambda: [each.pattern for each in self.discovery.subscriptions()],
            own_links=lambda: self.others,
        )
        self.link = MqttLink(
            Endpoint(broker.host, broker.port),
            self,
            client_id=OWN_ID,
            clean_start=False,
            session_expiry_s=60,
        )
        self.link.subscribe(self.discovery.subscriptions())

    def _changed(self, added: frozenset[str], removed: frozenset[str]) -> None:
        self.wanted = (self.wanted | added) - removed
        self.ever_widened |= "#" in added

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        self.discovery.on_up(link, session_present=session_present)

    def on_down(self, link: MqttLink, reason: str) -> None:
        self.times_down += 1
        self.discovery.on_down()

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        for packet, _, _ in publishes:
            assert packet.topic in (
                *LOG_TOPICS,
                *SYS_TOPICS,
                self.discovery.registrations_topic,
            )
            if packet.packet_id is not None:
                self.discovery.on_packet(packet.packet_id, duplicate=packet.duplicate)
            self.discovery.on_publish(packet)
            self.heard.append((packet.topic, packet.payload))
        self.discovery.tell_changes()

    @property
    def ticks(self) -> int:
        """How often the broker told its uptime, and so its counts."""
        return sum(topic == "$SYS/broker/uptime" for topic, _ in self.heard)

    @property
    def trusted(self) -> bool:
        return bool(self.discovery.snapshot()["trusted"])

    async def wants(self, *filters: str) -> None:
        await until(lambda: self.wanted == set(filters), f"{set(filters)} wanted")

    async def settles(self) -> None:
        await until(lambda: self.trusted, "trusted")


@contextlib.asynccontextmanager
async def running(broker: BrokerProcess, state_dir: Path, **settings: Any) -> AsyncIterator[Agent]:
    agent = Agent(broker, state_dir, **settings)
    saving = asyncio.create_task(agent.discovery.run())
    linking = asyncio.create_task(agent.link.run())
    try:
        yield agent
    finally:
        for task in (linking, saving):  # the file is closed last: it says when we last listened
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@contextlib.contextmanager
def files_stay_empty() -> Iterator[None]:
    """No file of this process can be written, as on a full disk; logs go elsewhere."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with capture_logs():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
async def counting(start_broker: StartBroker) -> BrokerProcess:
    """A broker that publishes its counts every second."""
    return await start_broker(extra_config=(COUNTS_OFTEN,))


@pytest.fixture
async def agent(counting: BrokerProcess, tmp_path: Path) -> AsyncIterator[Agent]:
    async with running(counting, tmp_path / "state") as agent:
        await agent.settles()
        yield agent


class Silent(LinkObserver):
    """Handles a connection of ours that is not looked at."""


class Client:
    """A paho client with its own thread; every call returns when the broker has answered."""

    def __init__(
        self,
        broker: BrokerProcess,
        id: str,
        *,
        packets: str = "v3",
        clean: bool = True,
        expiry_s: int | None = None,
    ) -> None:
        version = PACKETS[packets]
        self.v5 = version == paho.MQTTv5
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=id,
            protocol=version,
            clean_session=None if self.v5 else clean,
        )
        self.answers = 0
        self.connects = 0
        self.paho.on_connect = self._on_connect
        self.paho.on_subscribe = self._on_answer
        self.paho.on_unsubscribe = self._on_answer
        options: dict[str, Any] = {}
        if self.v5:
            options["clean_start"] = clean
            if expiry_s is not None:
                options["properties"] = Properties(1)  # CONNECT
                options["properties"].SessionExpiryInterval = expiry_s
        self.paho.connect(broker.host, broker.port, **options)
        self.paho.loop_start()

    def _on_connect(self, *_: object) -> None:
        self.connects += 1

    def _on_answer(self, *_: object) -> None:
        self.answers += 1

    async def connected(self) -> "Client":
        await until(lambda: self.connects > 0, "connected")
        return self

    async def subscribe(self, *filters: str) -> None:
        expected = self.answers + len(filters)
        for filter in filters:
            if self.v5:
                self.paho.subscribe(filter, options=SubscribeOptions(qos=1))
            else:
                self.paho.subscribe(filter, 1)
        await until(lambda: self.answers >= expected, "subscribed")

    async def unsubscribe(self, filter: str) -> None:
        expected = self.answers + 1
        self.paho.unsubscribe(filter)
        await until(lambda: self.answers >= expected, "unsubscribed")

    def leave(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def vanish(self) -> None:
        """Close the socket without a DISCONNECT."""
        stream = self.paho.socket()
        assert isinstance(stream, socket.socket)
        self.paho.on_disconnect = None
        self.paho.reconnect_delay_set(60, 60)
        with contextlib.suppress(OSError):
            stream.shutdown(socket.SHUT_RDWR)
        self.paho.loop_stop()


async def connect(broker: BrokerProcess, id: str, **options: Any) -> Client:
    return await Client(broker, id, **options).connected()


async def test_a_fresh_agent_beside_a_fresh_broker_settles_with_its_own_subscriptions(
    counting: BrokerProcess, tmp_path: Path
):
    async with running(counting, tmp_path / "state") as agent:
        await until(lambda: agent.ever_widened, "widened at first")
        await agent.settles()

        assert agent.wanted == set()
        assert agent.discovery.snapshot()["ambiguous"] == 0


async def test_a_connection_of_ours_that_is_away_does_not_stand_for_clients_nobody_heard_of(
    counting: BrokerProcess, tmp_path: Path
):
    client = await connect(counting, "client")
    await client.subscribe("a/1", "a/2")
    async with running(counting, tmp_path / "state") as agent:
        away = MqttLink(Endpoint(counting.host, 1), agent, client_id="federator-7-data")
        away.subscribe([TopicFilter("b/1"), TopicFilter("b/2")])
        agent.others.append(away)
        await until(lambda: agent.ticks >= 4, "the broker has counted")

        assert not agent.trusted
        assert agent.wanted == {"#"}
    client.leave()


async def test_what_the_broker_has_not_from_us_yet_does_not_hide_what_a_client_has(
    counting: BrokerProcess, agent: Agent, tmp_path: Path
):
    member = await connect(counting, "member")
    await member.subscribe("$share/g/jobs/#")
    await agent.wants("jobs/#")
    relays = RelayProcess(tmp_path)
    await relays.start()
    port = await relays.add("own", counting.place, delay_ms=0)
    stands_in = MqttLink(
        Endpoint(counting.host, port), Silent(), client_id="federator-7-share-0", keep_alive_s=60
    )
    agent.others.append(stands_in)
    standing = asyncio.create_task(stands_in.run())
    await until(lambda: stands_in.connected, "connected")

    await relays.order("silence", "own")
    stands_in.subscribe([TopicFilter("$share/g/jobs/#")])
    async with aiomqtt.Client(counting.host, counting.port, identifier=OWN_ID):
        await until(lambda: agent.times_down > 0, "another has its name")
    came_up_at = agent.ticks
    await until(lambda: agent.link.connected, "back, without a session")
    await until(lambda: agent.ticks >= came_up_at + 3, "the broker has counted")

    assert "jobs/#" in agent.wanted
    assert stands_in.connected
    assert not stands_in.subscribed

    await relays.order("heal", "own")
    await until(lambda: stands_in.subscribed, "it stands")
    await agent.settles()
    await agent.wants("jobs/#")
    standing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await standing
    await relays.stop()
    member.leave()


@pytest.mark.parametrize("packets", ["v3", "v5"])
async def test_subscribing_unsubscribing_and_leaving_is_seen(
    counting: BrokerProcess, agent: Agent, packets: str
):
    client = await connect(counting, "one", packets=packets)

    await client.subscribe("a/b", "c/+/d", "$share/workers/jobs/#", "a/b")
    await agent.wants("a/b", "c/+/d", "jobs/#")
    await client.unsubscribe("a/b")
    await agent.wants("c/+/d", "jobs/#")
    client.leave()

    await agent.wants()
    await agent.settles()


async def test_mosquitto_sub_and_aiomqtt_are_seen_too(counting: BrokerProcess, agent: Agent):
    process = await asyncio.create_subprocess_exec(
        *("mosquitto_sub", "-p", str(counting.port), "-t", "m/#", "-i", "m sub", "-V", "5")
    )
    try:
        async with aiomqtt.Client(counting.host, counting.port) as other:
            await other.subscribe("aio/+")
            await agent.wants("m/#", "aio/+")
        await agent.wants("m/#")
    finally:
        process.terminate()
        await process.wait()
    await agent.wants()


@pytest.mark.parametrize(
    ("options", "end"),
    [
        ({}, Client.vanish),
        ({"packets": "v5"}, Client.leave),
        ({"packets": "v5", "clean": False, "expiry_s": 1}, Client.leave),
    ],
    ids=["vanished", "without expiry", "expired"],
)
async def test_who_is_gone_with_its_session_takes_its_filters_along(
    counting: BrokerProcess, agent: Agent, options: dict[str, Any], end: Callable[[Client], None]
):
    client = await connect(counting, "one", **options)
    await client.subscribe("a", "b")
    await agent.wants("a", "b")

    end(client)

    await agent.wants()
    assert agent.trusted


@pytest.mark.parametrize(("packets", "expiry_s"), [("v3", None), ("v5", 3_600)], ids=["v3", "v5"])
async def test_a_persistent_session_keeps_its_filters_until_it_is_cleaned(
    counting: BrokerProcess, agent: Agent, packets: str, expiry_s: int | None
):
    options = {"packets": packets, "clean": False, "expiry_s": expiry_s}
    client = await connect(counting, "keeper", **options)
    await client.subscribe("a", "$share/g/b")
    client.leave()
    other = await connect(counting, "other")
    await other.subscribe("c")  # its line comes after everything above
    await agent.wants("a", "b", "c")
    await until(lambda: agent.discovery.snapshot()["doubtful"] == 0, "the count settled it")
    assert agent.wanted == {"a", "b", "c"}

    cleaner = await connect(counting, "keeper", packets=packets, clean=True)

    await agent.wants("c")
    cleaner.leave()
    other.leave()


@pytest.mark.parametrize("packets", ["v3", "v5"])
async def test_a_takeover_leaves_what_the_new_connection_subscribes(
    counting: BrokerProcess, agent: Agent, packets: str
):
    first = await connect(counting, "same", packets=packets)
    await first.subscribe("old")
    await agent.wants("old")
    first.paho.reconnect_delay_set(60, 60)

    second = await connect(counting, "same", packets=packets)
    await second.subscribe("new")

    await agent.wants("new")
    first.paho.loop_stop()
    second.leave()
    await agent.wants()


async def test_spaces_in_ids_and_filters_are_told_apart(counting: BrokerProcess, agent: Agent):
    await until(
        lambda: any(topic.endswith("clients/connected") for topic, _ in agent.heard),
        "connected clients counted",
    )
    one = await connect(counting, "sp")
    await one.subscribe("ace 0 t/1")
    await agent.wants("ace 0 t/1")
    one.leave()
    await agent.wants()

    two = await connect(counting, "sp 1 ace")
    await two.subscribe("t/1")
    await agent.wants("t/1")

    assert agent.discovery.snapshot()["ambiguous"] == 0
    two.leave()


async def test_two_clients_that_print_the_same_line_both_get_theirs(
    counting: BrokerProcess, agent: Agent
):
    one, two = await connect(counting, "sp"), await connect(counting, "sp 1 ace")

    await two.subscribe("t/1")

    await agent.wants("t/1", "ace 1 t/1")
    one.leave()
    await agent.wants("t/1")
    two.leave()
    await agent.wants()


async def test_counts_count_each_client_and_filter_once_and_shared_ones_apart(
    counting: BrokerProcess, agent: Agent
):
    own = agent.discovery.snapshot()
    one, two = await connect(counting, "one"), await connect(counting, "two", clean=False)
    await one.subscribe("a", "a", "$share/g/a", "$share/h/a")
    await two.subscribe("a", "b")
    two.leave()

    await until(
        lambda: agent.discovery.snapshot()["counted"] == own["counted"] + 3, "a, and a and b"
    )
    await until(
        lambda: agent.discovery.snapshot()["counted_shared"] == own["counted_shared"] + 2,
        "two groups",
    )
    assert agent.trusted
    one.leave()


async def test_lines_of_a_short_absence_are_caught_up_with(counting: BrokerProcess, tmp_path: Path):
    async with running(counting, tmp_path / "state") as first:
        await first.settles()
        gone = await connect(counting, "gone")
        await gone.subscribe("before")
        await first.wants("before")
        gone.leave()
        await first.wants()
        stays = await connect(counting, "stays")
        await stays.subscribe("early")
        await first.wants("early")
        await first.settles()

    late = await connect(counting, "late")
    await late.subscribe("late/+")
    await asyncio.sleep(3)  # the absence itself

    async with running(counting, tmp_path / "state") as second:
        await second.wants("early", "late/+")
        assert second.trusted
        assert not second.ever_widened
        stays.leave()
        late.leave()
        await second.wants()


async def saves(table: Path, text: bytes) -> None:
    """Returns once the agent has written a table that has ``text``, up to a second later."""
    await until(lambda: table.exists() and text in table.read_bytes(), f"{text!r} is saved")


async def test_a_killed_agent_trusts_its_table_only_after_the_counts(
    counting: BrokerProcess, tmp_path: Path
):
    state = tmp_path / "state"
    async with running(counting, state) as first:
        await first.settles()
        client = await connect(counting, "one")
        await client.subscribe("a/b")
        await first.wants("a/b")
        await first.settles()
        await saves(state / FILE_NAME, b"a/b")
        as_if_killed = (state / FILE_NAME).read_bytes()
    (state / FILE_NAME).write_bytes(as_if_killed)

    async with running(counting, state) as second:
        await until(lambda: second.ever_widened and "a/b" in second.wanted, "loaded, and widened")
        await second.settles()
        assert second.wanted == {"a/b"}
    client.leave()


async def test_after_a_full_disk_a_count_that_agrees_with_the_old_table_proves_nothing(
    counting: BrokerProcess, tmp_path: Path
):
    state = tmp_path / "state"
    outdated = state / f"{FILE_NAME}.outdated"
    async with running(counting, state) as first:
        await first.settles()
        client = await connect(counting, "one")
        await client.subscribe("a/b")
        await saves(state / FILE_NAME, b"a/b")
        with files_stay_empty():
            await until(outdated.exists, "a write that failed")
            await client.subscribe("home/#")
            await client.unsubscribe("a/b")
            await first.wants("home/#")
            await first.settles()
        as_if_killed = outdated.read_bytes()
        await until((state / FILE_NAME).exists, "a write that did not fail")
        await until(lambda: not outdated.exists(), "the outdated table is gone")
    (state / FILE_NAME).unlink()
    outdated.write_bytes(as_if_killed)

    async with running(counting, state) as second:
        await until(lambda: "1 doubtful" in second.discovery.snapshot()["reason"], "counted")
        assert second.wanted == {"#", "a/b"}
        client.leave()
        client = await connect(counting, "one")
        await client.subscribe("home/#")
        await second.wants("home/#")
    client.leave()


async def test_probes_that_a_killed_agent_left_in_its_session_are_cleared_away(
    counting: BrokerProcess, tmp_path: Path
):
    async with running(counting, tmp_path / "state") as first:
        await first.settles()
    probe = "$fed/fed/probe"
    killed = await connect(counting, OWN_ID, packets="v5", clean=False, expiry_s=60)
    await killed.subscribe(probe, f"$share/federator/{probe}")
    killed.vanish()

    async with running(counting, tmp_path / "state") as second:
        ticks = "$SYS/broker/uptime"
        await until(lambda: [t for t, _ in second.heard].count(ticks) > 3, "counted")
        await second.settles()
        await second.wants()


async def test_a_corrupt_file_is_set_aside(counting: BrokerProcess, tmp_path: Path):
    state = tmp_path / "state"
    state.mkdir()
    (state / FILE_NAME).write_bytes(b"\xc1 garbage")

    async with running(counting, state) as agent:
        await agent.settles()

    assert (state / f"{FILE_NAME}.unreadable").read_bytes() == b"\xc1 garbage"
    assert (state / FILE_NAME).exists()


async def test_subscriptions_older_than_the_agent_widen_until_their_clients_return(
    counting: BrokerProcess, tmp_path: Path
):
    old, older = await connect(counting, "old"), await connect(counting, "older", packets="v5")
    await old.subscribe("a", "b")
    await older.subscribe("c")

    async with running(counting, tmp_path / "state") as agent:
        await until(lambda: "the broker counts" in agent.discovery.snapshot()["reason"], "counted")
        assert agent.wanted == {"#"}
        old.leave()
        old = await connect(counting, "old")
        await old.subscribe("a", "b")
        await agent.wants("#", "a", "b")
        older.leave()
        older = await connect(counting, "older", packets="v5")
        await older.subscribe("c")

        await agent.wants("a", "b", "c")
        assert agent.trusted
    old.leave()
    older.leave()


async def test_a_restarted_broker_is_learned_anew(counting: BrokerProcess, agent: Agent):
    client = await connect(counting, "one")
    client.paho.reconnect_delay_set(1, 1)
    client.paho.on_connect = lambda paho_client, *_: paho_client.subscribe("a/b")
    await client.subscribe("a/b", "only/once")
    await agent.wants("a/b", "only/once")

    counting.kill9()
    await counting.start()

    await agent.wants("a/b")
    await agent.settles()
    client.leave()


async def test_registrations_reach_us_from_any_client(counting: BrokerProcess, agent: Agent):
    async with aiomqtt.Client(counting.host, counting.port) as client:
        await client.publish("$fed/fed/new_regular_topic", "registered/+", qos=1)
        await agent.wants("registered/+")
        await client.publish("$fed/fed/new_regular_topic", b"\xff\x00", qos=1)
        await client.publish("$fed/fed/new_regular_topic", "- registered/+", qos=1)
        await agent.wants()

"""Strangers at a gateway: nobody is let in, thrown out or shown anything in another's name.

The federation is signed, and its brokers ask for passwords. What clients publish at QoS 1 meanwhile
has to arrive, all of it, on the connections that they have.
"""

import asyncio
import contextlib
import ssl
import time

import pytest

from federator.gateway import wire
from federator.gateway.wire import V5, V311, Reason
from lab.bench.processor import resident_mb
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from lab.grid.processes.ports import free_ports
from tests.real.crowds.crowd import publish, subscribe
from tests.real.flow import Publisher, Subscriber, running
from tests.real.gateway import raw
from tests.real.logins import login, write_passwords, write_secret
from tests.real.plain_agents import DEEP, QUICK, eventually, linked
from tests.real.polling import until
from tests.real.trust.test_signed import Office
from tests.real.undisturbed import tell, undisturbed

pytestmark = pytest.mark.usefixtures("turns_told")

USER = "alice"
LOGIN = login(USER)
WRONG = b"wrong"
TRIES = 60
AT_ONCE = 50
GROWTH_MB_MAX = 60.0
WILL = "will/of/victim"


def wants(filter):
    """Whether an agent knows a way to whom ``filter`` is for, or has it among its own."""
    return lambda status: any(
        mesh["filter"] == filter and (mesh.get("local") or mesh.get("next_hops"))
        for mesh in status["meshes"]
    )


class Honest:
    """A pair of clients of a gateway, one at broker 1 and one at 2, that reconnect if they must."""

    def __init__(self, gateway, *agents):
        self.processes, port = [gateway, *agents], gateway.port
        self.ear = Subscriber(port, "honest/#", client_id="ear", qos=1, login=LOGIN)
        self.mouth = Publisher(port, "honest/x", client_id="mouth", qos=1, rate_hz=50, login=LOGIN)
        self.ends = []
        for each in (self.ear, self.mouth):
            each.on_down = lambda link, reason: self.ends.append(reason)

    async def heard_all(self, *, though_hung):
        """Every number came, once, and nobody was ever disconnected.

        A broker that hung for three pings and woke up reads what it had been sent, which the
        gateway has published again by then (docs/gateway.md, "What is promised").
        """
        self.mouth.pause()
        await until(lambda: len(self.ear.came) >= self.mouth.sent, "every message arrived")
        assert though_hung or self.ear.duplicates == 0
        assert self.ends == []

    @contextlib.asynccontextmanager
    async def talking(self, row=None, *, though_hung=False):
        """While the body runs; at its end nothing was lost, nor twice unless a broker hung."""
        async with running(self.ear):
            await until(lambda: self.ear.link.connected, "the ear is there")
            await until(lambda: self.ear.link.settled_through >= self.ear.link.offered, "asked")
            for agent in self.processes[1:]:
                # On a busy machine a SUBACK does not wait until the way stands (docs/gateway.md).
                await eventually(agent, wants("honest/#"), "the way to the ear stands")
            async with running(self.mouth):
                await until(lambda: self.ear.came, "something arrives")
                attack = undisturbed(row, self.mouth, self.ear, processes=self.processes)
                async with attack if row else contextlib.nullcontext():
                    yield
                await self.heard_all(though_hung=though_hung)


@pytest.fixture
def passwords(tmp_path):
    write_secret(tmp_path / "secret")
    return write_passwords(tmp_path / "passwords", USER)


@pytest.fixture
async def brokers(plain, tmp_path, passwords):
    """Brokers 1 and 2 with passwords, and their agents, signed."""
    lines = (*QUICK, *DEEP, f"password_file {passwords}")
    made = {id_: await plain.broker(allow_anonymous=False, extra_config=lines) for id_ in (1, 2)}
    us = {"username": USER, "password_file": str(tmp_path / "secret")}
    office = Office(tmp_path / "office")
    for id_, others in ((1, ()), (2, (made[1].url,))):
        sections = {"broker": us, "links": us, "security": "signed", "more": office.section(id_)}
        await plain.agent(id_, made[id_], *others, **sections)
    await eventually(plain.agents[0], linked(2), "linked")
    return made


@contextlib.asynccontextmanager
async def gateway_at(brokers, folder, *, upstreams=(), listeners=(), **more):
    us = {"username": USER, "password_file": str(folder / "secret")}
    urls = {id_: broker.url for id_, broker in brokers.items()}
    more.setdefault("attachment", {"assign": ["ear=2", "*=1"]})
    config = GatewayConfig(
        "gate",
        urls,
        federation="fed",
        broker=us,
        more=more,
        upstreams=dict(upstreams),
        listeners=listeners,
    )
    async with GatewayProcess(folder / "gateway", config) as gateway:
        yield gateway
        assert "Traceback" not in gateway.log_path.read_text()


def connect(version, client_id, *, password=LOGIN[1], **options):
    return raw.connect(version, client_id, username=USER, password=password, **options)


@contextlib.asynccontextmanager
async def client(port, hello, **options):
    """One that has said ``hello``, and the answer to that."""
    made = raw.Raw()
    try:
        yield made, await made.open(port, hello, **options)
    finally:
        await made.close()


async def refused(port, *client_ids):
    """Whoever comes in these names with a wrong password is refused, each time."""
    for number in range(TRIES):
        version = V5 if number % 2 else V311
        hello = connect(version, client_ids[number % len(client_ids)], password=WRONG)
        async with client(port, hello) as (_, answer):
            reason = wire.read_connack(answer, wire.only(answer), version).reason
            assert reason in (Reason.NOT_AUTHORIZED, Reason.BAD_USER_NAME_OR_PASSWORD), reason


async def is_there(client):
    client.writer.write(wire.PINGREQ)
    assert await client.packet() == wire.PINGRESP


@pytest.mark.parametrize("upstreams", [{}, {2: ("edge/#",)}], ids=["one broker", "two brokers"])
async def test_a_wrong_password_takes_nobody_s_place(brokers, plain, tmp_path, upstreams):
    victim = connect(V5, "victim", will=wire.Will(WILL, b"1", qos=1, retain=False))
    watcher = Subscriber(brokers[1].port, WILL, client_id="watcher", login=LOGIN)
    async with gateway_at(brokers, tmp_path, upstreams=upstreams) as gateway:
        honest = Honest(gateway, *plain.agents)
        async with (
            running(watcher),
            client(gateway.port, victim) as (named, answer),
            honest.talking("3 wrong passwords"),
        ):
            assert answer[0] == wire.Kind.CONNACK

            await refused(gateway.port, "victim", "ear", "mouth")

            await is_there(named)
            status = await gateway.status()
            assert status["counters"]["takeovers"] == 0
            assert (status["clients"], status["connecting"]) == (3 * (1 + len(upstreams)), 0)
            assert not watcher.came
            await named.close()
            await until(lambda: watcher.came, "its will, when it is gone")


@pytest.mark.parametrize("upstreams", [{}, {2: ("edge/#",)}], ids=["one broker", "two brokers"])
async def test_a_right_password_takes_the_place_wherever_the_former_is(
    brokers, tmp_path, upstreams
):
    """The least loaded broker is not the one where the former is."""
    attachment = {"policy": "least-loaded"}
    homes = set()
    async with (
        gateway_at(brokers, tmp_path, upstreams=upstreams, attachment=attachment) as gateway,
        contextlib.AsyncExitStack() as stack,
    ):
        former, _ = await stack.enter_async_context(client(gateway.port, connect(V5, "twin")))
        for _ in range(10):
            await refused(gateway.port, "twin")
            await is_there(former)

            again, _ = await stack.enter_async_context(client(gateway.port, connect(V5, "twin")))

            assert await former.packet() == wire.write_disconnect(Reason.SESSION_TAKEN_OVER, V5)
            assert await former.packet() is None
            await is_there(again)
            former = again
            rows = await gateway.clients()
            assert len(rows) == 1 + len(upstreams)
            homes.add(rows["twin"]["broker"])
    assert upstreams or homes == {1, 2}


@contextlib.asynccontextmanager
async def crowd(port, count, said=b"", *, host="127.0.0.1"):
    """So many connections that say ``said`` and then nothing more."""
    limit, made = asyncio.Semaphore(AT_ONCE), []

    async def come():
        async with limit:
            made.append(await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0)))
            with contextlib.suppress(ConnectionError):  # it gave way to another
                made[-1][1].write(said)
                await made[-1][1].drain()

    try:
        await asyncio.gather(*(come() for _ in range(count)))
        yield made
    finally:
        for _, writer in made:
            writer.transport.abort()
        for _, writer in made:
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def newcomers(port, count=20, **options):
    """So many come, one after the other, and each is let in."""
    for number in range(count):
        async with client(port, connect(V5, f"new-{number}"), **options) as (_, answer):
            assert answer is not None, number
            assert wire.read_connack(answer, wire.only(answer), V5).reason == 0


def unfinished(size):
    """All but the end of a CONNECT of ``size`` bytes."""
    return wire.write_publish("t", bytes(size), version=V311).replace(b"0", b"\x10", 1)[:-1]


PATIENT = {"clients": {"connect_timeout_ms": 600_000}}
"""No test depends on how soon a crowd is sent away for being slow."""


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
async def test_a_thousand_silent_ones_lock_nobody_out(brokers, plain, tmp_path, keys, secure):
    (port,) = free_ports(1)
    tls = {
        "port": port,
        "cert_file": str(keys / "broker.pem"),
        "key_file": str(keys / "broker.key"),
    }
    options = {}
    if secure:
        options["ssl"] = ssl.create_default_context(cafile=keys / "broker.pem")
    async with gateway_at(brokers, tmp_path, listeners=(tls,), **PATIENT) as gateway:
        door = port if secure else gateway.port
        async with Honest(gateway, *plain.agents).talking("14 silent ones"), crowd(door, 1_100):
            await newcomers(door, **options)


async def test_unfinished_packets_take_no_more_than_their_share_in_sum(brokers, plain, tmp_path):
    async with gateway_at(brokers, tmp_path, **PATIENT) as gateway:
        before = resident_mb(gateway.pid)
        async with (
            Honest(gateway, *plain.agents).talking("14 unfinished packets"),
            crowd(gateway.port, 400, unfinished(900_000)),
        ):
            await newcomers(gateway.port)
            will = wire.Will("w", bytes(60_000), 0, False)
            async with client(gateway.port, connect(V5, "big", will=will)) as (_, answer):
                assert answer[0] == wire.Kind.CONNACK
            grown = resident_mb(gateway.pid) - before
    assert grown < GROWTH_MB_MAX, grown


async def test_one_address_crowds_out_itself_alone(brokers, plain, tmp_path):
    share = {
        "unfinished_max": 100,
        "connecting_per_address_max": 50,
        "shared_addresses": ["127.0.0.1"],
        **PATIENT["clients"],
    }
    slow = connect(V5, "")
    async with gateway_at(brokers, tmp_path, clients=share) as gateway:
        async with (
            Honest(gateway, *plain.agents).talking("14 one address"),
            crowd(gateway.port, 40, b"\x10", host="127.0.0.3") as patient,
            crowd(gateway.port, 300, host="127.0.0.2"),
        ):
            await newcomers(gateway.port, local_addr=("127.0.0.2", 0))

            for reader, writer in patient:
                writer.write(wire.write_connect(slow)[1:])
                assert (await reader.read(100))[:1] == bytes([wire.Kind.CONNACK])
        status = await gateway.status()
        await until(lambda: "gateway.crowded" in gateway.log_path.read_text(), "it is told")
    assert status["counters"]["gave_way"] >= 250
    assert gateway.log_path.read_text().count("gateway.crowded") == 1


async def test_what_waits_for_a_broker_s_word_takes_no_more_than_its_share(brokers, tmp_path):
    share = {"connecting_per_address_max": 50, "shared_addresses": ["127.0.0.1"]}
    flood = wire.write_publish("t", bytes(900_000), version=V311)
    hello = wire.write_connect(connect(V311, ""))
    async with gateway_at(brokers, tmp_path, clients=share) as gateway:
        before = resident_mb(gateway.pid)
        async with Honest(gateway).talking(though_hung=True):
            for broker in brokers.values():
                broker.pause()
            try:
                async with crowd(gateway.port, 200, hello + flood):
                    grown = resident_mb(gateway.pid) - before
                async with crowd(gateway.port, 60, hello, host="127.0.0.2") as many:
                    ends = [asyncio.create_task(reader.read(1)) for reader, _ in many]
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                    status = await gateway.status()
                await asyncio.gather(*ends, return_exceptions=True)
            finally:
                for broker in brokers.values():
                    broker.resume()
    assert grown < GROWTH_MB_MAX, grown
    assert status["counters"]["over_share"] >= 1


async def test_who_subscribes_without_end_makes_nobody_else_wait(brokers, plain, tmp_path):
    many = [
        subscribe([f"greedy/{number}/{each}" for each in range(50)], packet_id=number)
        for number in range(1, 191)
    ]
    granted_s = []
    async with (
        gateway_at(brokers, tmp_path) as gateway,
        Honest(gateway, *plain.agents).talking("16 SUBSCRIBEs"),
        client(gateway.port, connect(V311, "greedy")) as (greedy, _),
    ):
        greedy.writer.write(b"".join(many))
        for number in range(20):
            async with client(gateway.port, connect(V311, f"new-{number}")) as (other, _):
                asked_s = time.monotonic()
                other.writer.write(subscribe([f"other/{number}"]))
                assert (await other.packet())[0] == wire.Kind.SUBACK
                granted_s.append(time.monotonic() - asked_s)
        acks = [await greedy.packet() for _ in many]
    assert {ack[0] for ack in acks} == {wire.Kind.SUBACK}
    tell(row="16 SUBSCRIBEs of others", p99_ms=round(1_000 * max(granted_s), 1))


async def test_who_publishes_without_end_makes_nobody_else_wait(brokers, plain, tmp_path):
    async with (
        gateway_at(brokers, tmp_path) as gateway,
        Honest(gateway, *plain.agents).talking("18 PUBLISHes"),
        client(gateway.port, connect(V311, "greedy")) as (greedy, _),
    ):
        for _ in range(10):
            greedy.writer.write(publish("x") * 50_000)
            await is_there(greedy)


async def test_filters_that_overlap_in_a_packet_each_make_nobody_else_wait(
    brokers, plain, tmp_path
):
    """And one that does not wait for CONNACK, and goes when all is said."""
    levels = "abcdefghijkl"
    filters = (
        "/".join(level if number >> at & 1 else "+" for at, level in enumerate(levels))
        for number in range(3_000)
    )
    many = [subscribe([each], packet_id=at) for at, each in enumerate(filters, start=1)]
    hello = wire.write_connect(connect(V311, "hasty"))
    async with (
        gateway_at(brokers, tmp_path) as gateway,
        Honest(gateway, *plain.agents).talking("22 filters that overlap"),
        client(gateway.port, connect(V311, "greedy")) as (greedy, _),
        client(gateway.port, connect(V311, "other")) as (other, _),
        crowd(gateway.port, 1, hello + b"".join(many)) as ((hasty, _),),
    ):
        greedy.writer.write(b"".join(many))
        acks = [await greedy.packet() for _ in many]
        for _ in range(40):
            other.writer.write(publish("/".join(levels), b"x"))
        came = [await greedy.packet() for _ in range(40)]
        await hasty.readexactly(4 + 5 * len(many))
    assert {ack[0] for ack in acks} == {wire.Kind.SUBACK}
    assert {packet[0] for packet in came} == {wire.Kind.PUBLISH}


async def test_who_says_much_and_leaves_at_once_is_heard_to_the_end(brokers, tmp_path):
    will = wire.Will(WILL, b"1", qos=1, retain=False)
    watcher = Subscriber(brokers[1].port, "last/#", client_id="watcher", login=LOGIN)
    widow = Subscriber(brokers[1].port, WILL, client_id="widow", login=LOGIN)
    async with gateway_at(brokers, tmp_path) as gateway, running(watcher), running(widow):
        for each in (watcher, widow):
            await until(lambda each=each: each.link.settled_through >= each.link.offered, "asked")
        async with client(gateway.port, connect(V311, "brief", will=will)) as (brief, _):
            said = b"".join(publish("last/t", b"%d" % number) for number in range(5_000))
            brief.writer.write(said + wire.write_disconnect(0, V311))
            brief.writer.close()
            await until(lambda: len(watcher.came) == 5_000, "all of it arrives")
    assert watcher.order == [*range(5_000)]
    assert not widow.came

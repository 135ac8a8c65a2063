"""Strangers at a gateway: nobody is let in, thrown out or shown anything in another's name.

The federation is signed, and its brokers ask for passwords. What clients publish at QoS 1 meanwhile
has to arrive, all of it, on the connections that they have.
"""

import contextlib
import subprocess

import pytest

from federator.gateway import wire
from federator.gateway.wire import V5, V311, Reason
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from tests.real.flow import Publisher, Subscriber, running
from tests.real.gateway.test_sessions import Raw
from tests.real.plain_agents import DEEP, QUICK, eventually, linked
from tests.real.polling import until
from tests.real.trust.test_signed import Office

SECRET = "right"
USER = "alice"
LOGIN = USER, SECRET.encode()
WRONG = b"wrong"
TRIES = 60
WILL = "will/of/victim"


class Honest:
    """A pair of clients of a gateway, one at broker 1 and one at 2, that reconnect if they must."""

    def __init__(self, port):
        self.ear = Subscriber(port, "honest/#", client_id="ear", qos=1, login=LOGIN)
        self.mouth = Publisher(port, "honest/x", client_id="mouth", qos=1, rate_hz=50, login=LOGIN)
        self.ends = []
        for each in (self.ear, self.mouth):
            each.on_down = lambda link, reason: self.ends.append(reason)

    async def heard_all(self):
        """Every number came once, and nobody was ever disconnected."""
        self.mouth.pause()
        await until(lambda: len(self.ear.came) >= self.mouth.sent, "every message arrived")
        assert self.ear.duplicates == 0
        assert self.ends == []

    @contextlib.asynccontextmanager
    async def talking(self):
        """While the body runs; at its end nothing was lost."""
        async with running(self.ear):
            await until(lambda: self.ear.link.connected, "the ear is there")
            await until(lambda: self.ear.link.settled_through >= self.ear.link.offered, "asked")
            async with running(self.mouth):
                await until(lambda: self.ear.came, "something arrives")
                yield
                await self.heard_all()


@pytest.fixture
def passwords(tmp_path):
    path, secret = tmp_path / "passwords", tmp_path / "secret"
    path.write_text(f"{USER}:{SECRET}\n")
    subprocess.run(["mosquitto_passwd", "-U", str(path)], check=True)
    secret.touch(mode=0o600)
    secret.write_text(SECRET)
    return path


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
    options = {"clean": True, "keep_alive": 60, **options}
    return wire.Connect(version, client_id, username=USER, password=password, **options)


@contextlib.asynccontextmanager
async def client(port, hello, **options):
    """One that has said ``hello``, and the answer to that."""
    raw = Raw()
    try:
        yield raw, await raw.open(port, hello, **options)
    finally:
        await raw.close()


async def refused(port, *client_ids):
    """Whoever comes in these names with a wrong password is refused, each time."""
    for number in range(TRIES):
        version = V5 if number % 2 else V311
        hello = connect(version, client_ids[number % len(client_ids)], password=WRONG)
        async with client(port, hello) as (_, answer):
            reason = wire.read_connack(answer, wire.only(answer), version).reason
            assert reason in (Reason.NOT_AUTHORIZED, Reason.BAD_USER_NAME_OR_PASSWORD), reason


async def is_there(raw):
    raw.writer.write(wire.PINGREQ)
    assert await raw.packet() == wire.PINGRESP


@pytest.mark.parametrize("upstreams", [{}, {2: ("edge/#",)}], ids=["one broker", "two brokers"])
async def test_a_wrong_password_takes_nobody_s_place(brokers, tmp_path, upstreams):
    victim = connect(V5, "victim", will=wire.Will(WILL, b"1", qos=1, retain=False))
    watcher = Subscriber(brokers[1].port, WILL, client_id="watcher", login=LOGIN)
    async with gateway_at(brokers, tmp_path, upstreams=upstreams) as gateway:
        honest = Honest(gateway.port)
        async with (
            running(watcher),
            client(gateway.port, victim) as (raw, answer),
            honest.talking(),
        ):
            assert answer[0] == wire.Kind.CONNACK

            await refused(gateway.port, "victim", "ear", "mouth")

            await is_there(raw)
            status = await gateway.status()
            assert status["counters"]["takeovers"] == 0
            assert (status["clients"], status["connecting"]) == (3 * (1 + len(upstreams)), 0)
            assert not watcher.came
            await raw.close()
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

"""A collector of real agents: each record once, whoever is killed, and nobody else's records."""

import asyncio
import contextlib
import json
import random
import subprocess
import time

import pytest

from federator.protocol.messages.guide import Guide, GuideBroker
from federator.protocol.messages.json_codec import encode as encode_word
from lab.grid.processes.children import get
from lab.grid.processes.daemons import CollectorProcess
from lab.grid.processes.relay import Relay
from tests.collector.world import ModelAgent, line
from tests.real.agent_log import named, tally
from tests.real.client import Client
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import DEADLINE_S, until
from tests.real.telemetry.collecting import gaps, landed_lines, spooled_lines
from tests.real.undisturbed import undisturbed
from tests.tcp_server import serving

QUICK = "[metrics]\nenabled = true\nflush_ms = 100\nsegment_age_ms = 700\nsample = 3\n"
FILES = "[files]\nrotate_ms = 300\n[reading]\nanswer_ms = 1000\n"


@pytest.fixture
async def ring(plain):
    """Three brokers and their agents, each with a metrics stream."""
    brokers = [await plain.broker() for _ in range(3)]
    one, two, three = brokers
    await plain.agent(1, one, more=QUICK)
    await plain.agent(2, two, one.url, more=QUICK)
    await plain.agent(3, three, one.url, two.url, more=QUICK)
    for agent, others in zip(plain.agents, ([2, 3], [1, 3], [1, 2]), strict=True):
        await eventually(agent, linked(*others), "linked")
    return brokers


@contextlib.asynccontextmanager
async def collecting(folder, *urls, **options):
    collector = CollectorProcess(folder, *urls, **options)
    await collector.start()
    try:
        yield collector
    finally:
        stopped = await collector.stop()
        log = collector.log_path.read_text()
        assert "Traceback" not in log, log[-2_000:]
        assert stopped


@contextlib.asynccontextmanager
async def traffic(brokers):
    """Publications from the first broker to the last."""
    subscriber = Subscriber(brokers[-1].port, "plant/#", client_id="reader", qos=1)
    publisher = Publisher(brokers[0].port, "plant/7", client_id="writer", rate_hz=200, qos=1)
    async with running(subscriber, publisher):
        yield


def ends_of(lines):
    """The last batch of each spool."""
    ends = {}
    for broker, spool, batch, _ in lines:
        ends[broker, spool] = max(batch, ends.get((broker, spool), 0))
    return ends


def newest(agents):
    """Where the spools end now."""
    return ends_of(place for agent in agents for place in spooled_lines(agent.state_dir))


async def caught_up(collector, ends):
    """Wait until ``ends`` are landed."""

    def landed():
        now = ends_of(landed_lines(collector.landing))
        return all(now.get(key, 0) >= last for key, last in ends.items())

    await until(landed, lambda: collector.log_tail(20), deadline_s=3 * DEADLINE_S)


def assert_landed_as_spooled(collector, agents, ends):
    """Each record up to ``ends`` once, byte by byte, and none that no spool has."""
    landed, spooled = landed_lines(collector.landing), {}
    for agent in agents:
        spooled |= spooled_lines(agent.state_dir)
    assert not gaps(landed)
    assert landed.items() <= spooled.items()
    due = {at for at in spooled if at[2] <= ends[at[:2]]}
    assert due <= landed.keys()
    assert len(due) > 200


async def test_every_record_lands_once_through_kills_of_collector_agents_and_a_broker(
    plain, ring, tmp_path
):
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - to tell the story again
    rng = random.Random(seed)
    one, two, _ = ring
    victims = [*["collector"] * 5, "agent 2", "agent 3", "broker 2"]
    rng.shuffle(victims)
    folder = tmp_path / "collector"
    async with collecting(folder, one.url, sections=FILES) as collector, traffic(ring):
        for victim in victims:
            await asyncio.sleep(rng.uniform(0.1, 1.2))  # anywhere in a file's life
            match victim:
                case "collector":
                    collector.kill9()
                    await collector.start()
                case "broker 2":
                    two.kill9()
                    await two.start()
                case _:
                    agent = plain.agents[int(victim[-1]) - 1]
                    agent.kill9()
                    await agent.start()

        ends = newest(plain.agents)
        await caught_up(collector, ends)

        assert len(ends) == 3
        assert_landed_as_spooled(collector, plain.agents, ends)


async def test_a_collector_that_was_away_lands_the_backlog_and_tells_what_is_gone(
    plain, ring, tmp_path
):
    folder = tmp_path / "collector"
    async with collecting(folder, ring[2].url, sections=FILES) as collector:
        await caught_up(collector, newest(plain.agents))
        assert collector.kill9() is None
        before = landed_lines(collector.landing)
        away = newest(plain.agents[:1])

        def unread():
            files = plain.agents[0].state_dir.glob("metrics/*.jsonl")
            later = [path for path in files if first_batch(path) > max(away.values())]
            return sorted(later, key=first_batch)

        await until(lambda: len(unread()) >= 3, "the spool of agent 1 grows")
        lost = unread()[1]
        first, last = first_batch(lost), int(lost.stem.split("-")[3])
        lost.unlink()

        await collector.start()
        await caught_up(collector, newest(plain.agents))

        landed = landed_lines(collector.landing)
        assert before.items() <= landed.items()
        told = [json.loads(text) for text in gaps(landed)]
        assert {(gap["broker"], gap["kind"]) for gap in told} == {(1, "collector_skip")}
        told.sort(key=lambda gap: gap["batch"])
        spans = [range(gap["batch"], gap["batch"] + gap["value"]) for gap in told]
        assert [batch for span in spans for batch in span] == [*range(first, last + 1)]
        assert tally(collector)["collector.skip"] == len(told)
        batches = {at[2] for at in landed if at[0] == 1} | set(range(first, last + 1))
        assert batches == set(range(1, max(batches) + 1))


async def test_stopping_lands_what_is_in_memory_and_until_then_the_pages_tell_of_it(
    plain, tmp_path
):
    broker = await plain.broker()
    await plain.agent(7, broker, more=QUICK)
    slow = "[files]\nrotate_ms = 3600000\n"
    async with collecting(tmp_path / "collector", broker.url, sections=slow) as collector:
        status = await eventually(
            collector, lambda s: [k for k in s["spools"] if k["taken"] >= 5], "five are taken"
        )
        (spool,) = status["spools"]
        _, page = await get(collector.http_port, "/metrics", who="collector")
        code, _ = await get(collector.http_port, "/readyz", who="collector")
        assert not landed_lines(collector.landing)

        assert await collector.stop()

    assert (spool["broker"], spool["landed"], code) == (7, 0, 200)
    told = f'federator_collector_lag_batches{{broker="7",spool="{spool["spool"]}"}}'
    assert told in page.decode()
    landed = landed_lines(collector.landing)
    assert {at[2] for at in landed} >= set(range(1, spool["taken"] + 1))
    assert len(list(collector.landing.rglob("*.jsonl"))) == 1
    assert "collector.stopped" in tally(collector)


def first_batch(path):
    return int(path.stem.split("-")[2])


async def connected(collector, urls):
    """Wait until it is connected to exactly these."""
    await eventually(
        collector,
        lambda s: {each["url"] for each in s["brokers"] if each["connected"]} == urls,
        f"it is connected to {urls}",
    )


def asked_at(port):
    """A client that speaks for an agent with records, and hears who asks for them."""
    return Client(port, f"agent-{port}", "$fed/fed/metrics/ask", qos=0)


async def test_a_broker_reached_by_two_addresses_is_read_by_the_one_that_was_named(
    start_broker, tmp_path
):
    one, two = await start_broker(), await start_broker()
    first, second = asked_at(one.port), asked_at(two.port)
    agent = ModelAgent(2)
    agent.flush()
    way = Relay(("127.0.0.1", two.port), delay_s=0)
    named = [one.url, f"mqtt://127.0.0.1:{way.listen()}"]
    way.cut()
    brokers = (GuideBroker(1, one.url), GuideBroker(2, two.url), GuideBroker(3, "http://none"))
    async with (
        running(first, second),
        collecting(tmp_path / "collector", *named, sections=FILES) as collector,
    ):
        await first.put(
            "$fed/fed/guide", encode_word(Guide(1, "fed", 1, 1, 1, 1, brokers)), retain=True
        )
        await connected(collector, {named[0], two.url})
        way.heal()
        await connected(collector, {*named, two.url})

        await second.put("$fed/fed/metrics/head", agent.head(), retain=True)

        await connected(collector, set(named))
        asks = len(second.came)
        await until(lambda: len(second.came) > asks + 1, "it is asked by its name")
        status = await collector.status()
        assert {each["url"]: each["id"] for each in status["brokers"]} == {named[0]: 1, named[1]: 2}
        assert status["unreached"] == [3]
        assert tally(collector)["collector.not_dialled"] == 1
    way.close()


@contextlib.asynccontextmanager
async def trap():
    """Somebody else's port, and all that is sent there."""
    came = bytearray()

    async def take(reader, _writer):
        came.extend(await reader.read(65_536))

    async with serving(take) as port:
        yield f"mqtt://localhost:{port}", came


INVENTED = range(9, 4_000)
GUIDES = 100


def guide_to(url, first=INVENTED[0]):
    """A guide of broker 1 that says where ``first`` is, and many more."""
    more = (GuideBroker(id_, f"mqtt://localhost:{id_}") for id_ in INVENTED if id_ != first)
    return encode_word(Guide(1, "fed", 1, 1, 1, 1, (GuideBroker(first, url), *more)))


def refused(collector):
    """What was told of the invented brokers."""
    told = named(collector, "collector.not_dialled")
    return [line["reason"] for line in told if line["broker"] in INVENTED]


@pytest.mark.usefixtures("turns_told")
@pytest.mark.parametrize("allowed", [False, True])
async def test_the_password_goes_where_it_was_configured_for_and_nowhere_else(
    plain, tmp_path, allowed
):
    passwords, secret_file = tmp_path / "passwords", tmp_path / "secret"
    passwords.write_text("collector:open-sesame\n")
    await asyncio.to_thread(subprocess.run, ["mosquitto_passwd", "-U", passwords], check=True)
    secret_file.touch(mode=0o600)
    secret_file.write_text("open-sesame")
    broker = await plain.broker(extra_config=("sys_interval 1", f"password_file {passwords}"))
    other = await plain.broker()
    await plain.agent(1, broker)
    await plain.agent(2, other, broker.url)
    await eventually(plain.agents[0], linked(2), "linked")
    subscriber = Subscriber(other.port, "plant/#", client_id="reader", qos=1)
    publisher = Publisher(broker.port, "plant/7", client_id="writer", qos=1)
    forger = asked_at(broker.port)
    login = f'[login]\nusername = "collector"\npassword_file = {json.dumps(str(secret_file))}\n'
    login += 'hosts = ["localhost"]\n' if allowed else ""
    async with (
        running(forger, subscriber, publisher),
        trap() as (elsewhere, came),
        collecting(tmp_path / "collector", broker.url, sections=FILES + login) as collector,
    ):
        await connected(collector, {broker.url})
        await gets_through(publisher, subscriber)
        if allowed:
            await forger.put("$fed/fed/guide", guide_to(elsewhere), retain=True)
            await until(lambda: b"open-sesame" in came, "it goes where it may")
        else:
            watched = (*plain.agents, collector)
            async with undisturbed("13 password", publisher, subscriber, processes=watched):
                for first in INVENTED[:GUIDES]:
                    await forger.put("$fed/fed/guide", guide_to(elsewhere, first), retain=True)
                    await asyncio.sleep(0)
                await until(lambda: refused(collector), "it is refused")
                await gets_through(publisher, subscriber)

    assert (b"open-sesame" in came) == allowed
    assert bool(refused(collector)) == (not allowed)
    assert all("login.hosts" in reason for reason in refused(collector))


async def test_a_client_that_forges_heads_and_answers_changes_nothing_that_lands(
    plain, ring, tmp_path
):
    forger = ModelAgent(1)
    forger.spool = "f" * 16
    other = ModelAgent(2)
    forger.flush()
    vandal = Client(ring[0].port, "vandal")
    folder = tmp_path / "collector"
    async with collecting(folder, ring[0].url, sections=FILES) as collector, running(vandal):
        await caught_up(collector, newest(plain.agents))
        heard = {"malformed": 0, "misled": 0}
        end_s = time.monotonic() + DEADLINE_S
        # In rounds, until enough was heard: what a broker has no room for, of QoS 0, it drops.
        while heard["malformed"] < 1_000 or heard["misled"] < 500:
            assert time.monotonic() < end_s, heard
            for number in range(45):
                forger.spool = f"{number % 9:x}" * 16
                forger.last = 10**18
                await vandal.put("$fed/fed/metrics/head", forger.head(), retain=True)
                await vandal.put("$fed/fed/metrics/head", other.head())
                await vandal.put("$fed/fed/metrics/head", b'{"v":1,"last":1e999}' * 50)
                answer = forger.again(1, 9) + line(1, forger.spool, 1, 0)
                await vandal.put("$fed/fed/metrics/again/token", answer)
                await vandal.put("$fed/fed/metrics/again/" + "0" * 32, answer)
                await vandal.put("$fed/fed/guide", b"\xff" * 1_000)
            heard = (await collector.status())["counters"]

        assert tally(collector)["collector.malformed"] > 0
        ends = newest(plain.agents)
        await caught_up(collector, ends)

        assert_landed_as_spooled(collector, plain.agents, ends)
        assert len((await collector.status())["spools"]) <= 3 + 4

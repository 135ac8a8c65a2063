"""Whoever is slow loses its own share: others are served in time, and nothing grows without bound.

A line of three brokers, 0 - 1 - 2. Clients publish beside broker 1 more than the slow one takes.
"""

import asyncio
import socket
import time

import mqtt5
import pytest

from lab.bench.processor import resident_bytes
from lab.grid.running import RunningGrid
from lab.grid.topology import Grid, Link
from tests.real.agent_log import assert_calm, named
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import DEEP, QUICK, gets_through
from tests.real.polling import until
from tests.real.undisturbed import tell

QUEUE_BYTES = 1_048_576
PAYLOAD_BYTES = 10_000
RATE_HZ = 300
NARROW_BYTES_PER_S = 1_000_000
"""A third of what is published."""

VERY_NARROW_BYTES_PER_S = 100_000
SLOW_S = 8.0
"""More than two hello time-outs, and several times what fills the queues."""

GROWTH_BYTES_MAX = 24 * QUEUE_BYTES
"""What is bounded, and room for noise; 40 MB do not fit through the narrow link in that time."""

CARRIED_S = 5.0
"""Of the time in which the narrow link is full, so long is counted what comes over it."""

LATE_MS_BAR = 100
"""Of ``script/attacks``: 90 of 100 come so soon; usually a few milliseconds."""

PROGRESS = 500
"""Several times the publications that find room in queues."""


class Padded(Publisher):
    """Publications of a size that tells."""

    def payload(self, number):
        return super().payload(number).ljust(PAYLOAD_BYTES)

    def delays_s(self, subscriber, *, since):
        """Ascending, of what ``subscriber`` got of the numbers from ``since`` on."""
        arrivals = zip(subscriber.order, subscriber.at_s, strict=True)
        return sorted(at_s - self.sent_at_s[n] for n, at_s in arrivals if n >= since)


def assert_served(row, publisher, subscriber, *, first, last):
    """Whoever waits behind a slow one gets less than a sixth in that time; so much is asserted.

    ``last``: the last number published while there was a slow one.
    """
    delays_s = publisher.delays_s(subscriber, since=first)
    p90_ms = round(1_000 * delays_s[len(delays_s) * 9 // 10], 1)
    tell(row=row, p99_ms=p90_ms, bars={"p99_ms": LATE_MS_BAR})
    assert max(subscriber.came) > (first + last) / 2


@pytest.fixture
async def line(tmp_path):
    async with RunningGrid(
        Grid(1, 3, 0),
        tmp_path,
        link_delay_ms=1,
        broker_options=(*QUICK, *DEEP),
        agent_options={"links": {"send_queue_bytes_max": QUEUE_BYTES}},
    ) as grid:
        yield grid
        for agent in grid.agents.values():
            assert_calm(agent)


def at(grid, here, **options):
    return Subscriber(grid.brokers[here].port, "flow/#", client_id=f"s{here}", **options)


async def data_counters(grid, here):
    return (await grid.agents[here].status())["counters"]["data"]


async def capacities(grid, here):
    """In bits per second, by neighbour; ``None`` where it is not learnt."""
    links = (await grid.agents[here].status())["links"]
    return {link["neighbour"]: link["capacity"] for link in links}


async def has_learnt(grid, neighbour):
    return (await capacities(grid, 1))[neighbour] is not None


async def slow_phase(publisher, *, seconds=SLOW_S):
    """Let it last; returns the first number published in it."""
    first = publisher.sent
    await asyncio.sleep(seconds)
    return first


async def test_a_narrow_link_neither_delays_others_nor_goes_down(line):
    quick, slow = at(line, 0), at(line, 2)
    publisher = Padded(line.brokers[1].port, "flow/x", client_id="pub", rate_hz=RATE_HZ)
    async with running(quick, slow, publisher):
        await gets_through(publisher, quick, slow)
        before = resident_bytes(line.agents[1].pid)

        await line.order("narrow", Link(1, 2), bytes_per_s=NARROW_BYTES_PER_S)
        first = await slow_phase(publisher)
        assert_served("a narrow link", publisher, quick, first=first, last=publisher.sent)
        dropped = (await data_counters(line, 1))["dropped"]
        grown = resident_bytes(line.agents[1].pid) - before

        assert not named(line.agents[1], "link.down"), "hellos waited behind data"
        assert not named(line.agents[2], "link.down"), "hellos waited behind data"
        assert dropped > 0
        (told,) = named(line.agents[1], "connection.dropped")
        assert 0 < told["dropped"] == told["so_far"]
        assert grown < GROWTH_BYTES_MAX
        await until(lambda: has_learnt(line, 2), "the link's capacity is learnt")
        late_s = time.monotonic() - CARRIED_S
        carried = 8 * PAYLOAD_BYTES * sum(at_s > late_s for at_s in slow.at_s) / CARRIED_S
        learnt = await capacities(line, 1)
        assert learnt[0] is None
        assert carried / 2 < learnt[2] < 1.3 * 8 * NARROW_BYTES_PER_S

        await line.order("narrow", Link(1, 2), bytes_per_s=None)
        await gets_through(publisher, slow)
        first = publisher.sent
        dropped = (await data_counters(line, 1))["dropped"]
        await asyncio.sleep(2)
        last = publisher.sent - 1
        await until(lambda: last in slow.came, "it keeps up again")
        assert set(range(first, last)) <= set(slow.came)
        assert (await data_counters(line, 1))["dropped"] == dropped
    assert set(range(max(quick.came))) - set(quick.came) <= set(range(min(quick.came)))
    assert quick.duplicates == slow.duplicates == 0


class Stuck:
    """A client that subscribes and then reads no more."""

    def __init__(self, port, topic_filter):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self.socket.connect(("127.0.0.1", port))
        self.socket.sendall(mqtt5.ConnectPacket("stuck").write())
        self.socket.sendall(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter(topic_filter)]).write())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.socket.close()


async def test_a_stuck_client_delays_nobody(line):
    beside, quick = at(line, 2), at(line, 0)
    publisher = Padded(line.brokers[1].port, "flow/x", client_id="pub", rate_hz=RATE_HZ)
    async with running(beside, quick, publisher):
        await gets_through(publisher, beside, quick)
        before = resident_bytes(line.agents[2].pid)

        with Stuck(line.brokers[2].port, "flow/#"):
            first = await slow_phase(publisher, seconds=4.0)
            assert_served("a stuck client", publisher, beside, first=first, last=publisher.sent)
            last = max(beside.came)
            grown = resident_bytes(line.agents[2].pid) - before

        assert set(range(first, last)) <= set(beside.came)
        assert grown < GROWTH_BYTES_MAX
    assert (await data_counters(line, 2))["dropped"] == 0


async def test_a_stopped_broker_delays_nobody_and_is_served_again(line):
    quick, stopped = at(line, 0), at(line, 2)
    publisher = Padded(line.brokers[1].port, "flow/x", client_id="pub", rate_hz=RATE_HZ)
    async with running(quick, stopped, publisher):
        await gets_through(publisher, quick, stopped)
        before = resident_bytes(line.agents[1].pid)

        line.brokers[2].pause()
        first = publisher.sent
        await until(lambda: bool(named(line.agents[1], "link.down")), "its silence is noticed")
        await slow_phase(publisher, seconds=1.0)
        assert_served("a stopped broker", publisher, quick, first=first, last=publisher.sent)
        last = max(quick.came)
        grown = resident_bytes(line.agents[1].pid) - before

        assert set(range(first, last)) <= set(quick.came)
        assert grown < GROWTH_BYTES_MAX

        line.brokers[2].resume()
        await line.until(line.links_up)
        await gets_through(publisher, stopped)
    assert stopped.duplicates == 0


async def test_a_subscription_overtakes_the_data_that_waits_on_a_narrow_link(line):
    quick, slow = at(line, 0), at(line, 2)
    publisher = Padded(line.brokers[1].port, "flow/x", client_id="pub", rate_hz=RATE_HZ)
    async with running(quick, slow, publisher):
        await gets_through(publisher, quick, slow)
        await line.order("narrow", Link(1, 2), bytes_per_s=VERY_NARROW_BYTES_PER_S)
        await until(
            lambda: bool(named(line.agents[1], "connection.dropped")), "the queue has been full"
        )
        waits_s = QUEUE_BYTES / VERY_NARROW_BYTES_PER_S
        began_s = time.monotonic()
        other = Subscriber(line.brokers[0].port, "other/#", client_id="other")
        async with running(other):
            await line.until(lambda statuses: lacks(statuses[2], "other/#"))

        assert time.monotonic() - began_s < waits_s / 2, "it waited behind data"


def lacks(status, filter_):
    known = {mesh["filter"] for mesh in status["meshes"]}
    return None if filter_ in known else f"{filter_} unknown among {known}"


@pytest.mark.full
async def test_at_qos_1_a_narrow_link_loses_nothing(line):
    quick, slow = at(line, 0, qos=1), at(line, 2, qos=1)
    publisher = Padded(line.brokers[1].port, "flow/x", client_id="pub", rate_hz=RATE_HZ, qos=1)
    async with running(quick, slow, publisher):
        await gets_through(publisher, quick, slow)
        before = {here: resident_bytes(line.agents[here].pid) for here in (1, 2)}

        await line.order("narrow", Link(1, 2), bytes_per_s=NARROW_BYTES_PER_S)
        first = await slow_phase(publisher)
        assert_served("a narrow link, QoS 1", publisher, quick, first=first, last=publisher.sent)
        grown = {here: resident_bytes(line.agents[here].pid) - before[here] for here in (1, 2)}
        assert not named(line.agents[1], "link.down"), "hellos waited behind data"
        assert named(line.agents[1], "connection.dropped")
        came = max(slow.came)
        await until(lambda: max(slow.came) > came + PROGRESS, "it goes on while the link is full")
        assert max(slow.came) < max(quick.came) - RATE_HZ, "the link was not narrow"
        assert max(grown.values()) < GROWTH_BYTES_MAX, grown

        await line.order("narrow", Link(1, 2), bytes_per_s=None)
        publisher.pause()
        await until(lambda: not publisher.link.unacknowledged, "all is acknowledged")
        begins = max(min(quick.came), min(slow.came))
        everything = set(range(begins, publisher.sent))
        for subscriber in (quick, slow):
            await until(
                lambda s=subscriber: everything <= set(s.came), "all arrive", deadline_s=180
            )
    assert quick.duplicates == slow.duplicates == 0
    assert slow.order == sorted(slow.order)

"""Ten thousand retained values come over, and live traffic hardly notices. Issue 3, "Must show"."""

import asyncio
import contextlib
import struct
import time

from lab.grid.running import RunningGrid
from lab.grid.topology import Grid
from tests.real.client import Client
from tests.real.flow import Publisher, running
from tests.real.plain_agents import DEEP, QUICK
from tests.real.polling import until
from tests.real.retained.retained_clients import client
from tests.real.undisturbed import tell

TOPICS = 10_000
VALUE = bytes(64)
LIVE_HZ = 200
LATER_MS_BAR = 100
"""Of ``script/attacks``."""
BEFORE_S = 3.0


class Stamping(Publisher):
    """Says when each publication was sent."""

    def payload(self, number):
        return struct.pack("d", time.monotonic())


class Delays(Client):
    """The delays of live publications, in ms, by when they came."""

    def __init__(self, port):
        super().__init__(port, "live", "live/x", qos=0)

    def on_publishes(self, link, chunk, publishes):
        now_s = time.monotonic()
        for packet, _, _ in publishes:
            (sent_s,) = struct.unpack("d", packet.payload)
            self.came.append((now_s, (now_s - sent_s) * 1000))

    def p99_ms(self, since_s, until_s):
        delays = sorted(ms for at_s, ms in self.came if since_s <= at_s < until_s)
        assert len(delays) > 100, "too few to tell"
        return delays[len(delays) * 99 // 100]


async def set_all(setter):
    for number in range(TOPICS):
        setter.send(f"many/{number}", VALUE)
        if number % 500 == 0:
            await until(lambda: setter.link.unacknowledged < 100, "the broker keeps up")
    await until(lambda: not setter.link.unacknowledged, "the broker has all values")


async def synchronised(grid, here):
    """A late joiner at broker ``here``: (seconds until it had all, p99 in ms before and then)."""
    delays = Delays(grid.brokers[here].port)
    async with running(delays):
        await until(lambda: delays.came, "live traffic flows")
        start_s = delays.came[0][0]
        await until(lambda: delays.came[-1][0] > start_s + BEFORE_S, "a while passes")

        asked_s = time.monotonic()
        async with client(grid.brokers[here], "late", "many/#") as late:
            await until(lambda: len(late.came) >= TOPICS, "all values come", deadline_s=60)
            done_s = time.monotonic()

    assert len(late.latest) == len(late.came) == TOPICS
    return done_s - asked_s, delays.p99_ms(start_s, asked_s), delays.p99_ms(asked_s, done_s)


async def test_ten_thousand_values_come_and_live_traffic_does_not_wait_behind_them(tmp_path):
    """A busy machine delays by itself: one of three joiners has to show it."""
    options = (*QUICK, *DEEP)
    grid = RunningGrid(Grid(1, 4, 0), tmp_path, link_delay_ms=5, broker_options=options)
    async with grid, client(grid.brokers[0], "setter") as setter:
        await set_all(setter)
        port = grid.brokers[0].port
        figures = []
        async with running(Stamping(port, "live/x", client_id="sender", rate_hz=LIVE_HZ)):
            for here in (1, 2, 3):
                took_s, before_ms, during_ms = await synchronised(grid, here)
                figures.append(f"{took_s:.2f} s, p99 {before_ms:.1f} -> {during_ms:.1f} ms")
                if during_ms < 1_000 * took_s / 2:
                    break
            else:
                raise AssertionError(str(figures))
        later_ms = round(during_ms - before_ms, 1)
        tell(row="10,000 retained values", p99_ms=later_ms, bars={"p99_ms": LATER_MS_BAR})
        for agent in grid.agents.values():  # our own subscriptions are no clients'
            assert agent.log_path.read_text().count("discovery.untrusted") == 1


@contextlib.asynccontextmanager
async def stuttering(agent):
    """Stop ``agent`` again and again: however fast the machine, its broker has to drop."""

    async def stutter():
        while True:
            agent.pause()
            await asyncio.sleep(0.3)
            agent.resume()
            await asyncio.sleep(0.3)

    task = asyncio.create_task(stutter())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        agent.resume()


async def test_values_that_a_broker_drops_on_the_way_to_us_are_not_taken_for_deleted(tmp_path):
    often = {"retained": {"resync_s": 1}}
    grid = RunningGrid(
        Grid(1, 2, 0), tmp_path, link_delay_ms=1, broker_options=QUICK, agent_options=often
    )
    async with grid, client(grid.brokers[0], "setter") as setter:
        for number in range(5_000):  # more than 1,000 packets and what sockets hold
            setter.send(f"big/{number}", bytes(8_000))
            if number % 50 == 0:
                await until(lambda: setter.link.unacknowledged < 50, "the broker keeps up")
        await until(lambda: not setter.link.unacknowledged, "the broker has all values")

        async with stuttering(grid.agents[0]), client(grid.brokers[1], "late", "big/#"):
            statuses = await grid.until(known_incomplete)

        assert statuses[0]["retained"]["tombstones"] == 0
        told = grid.agents[0].log_path.read_text()
        assert "retained.look_incomplete" in told or "retained.failed" in told


def known_incomplete(statuses):
    """Told by the broker, or by the mark behind the values, which was dropped with them."""
    retained = statuses[0]["retained"]
    looks = retained["looks_incomplete"] + retained["failed"]
    return None if looks > 1 else f"{looks} looks are known to be incomplete"

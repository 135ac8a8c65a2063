"""A steerer and a planned way that fail: flows go the ordinary way, nothing is lost, nobody loops.

A square with links of limited length: from 1 to 4 the ordinary way leads by 2, the planned one
by 3.
"""

import contextlib
import time

import pytest

from federator.protocol.messages.steering import tree_of
from lab.grid.processes.daemons import SteererProcess
from lab.grid.running import FEDERATION, RunningGrid
from lab.grid.topology import Graph, Link
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import DEEP, QUICK, gets_through
from tests.real.polling import until
from tests.real.steering.by_hand import plan, retain

pytestmark = pytest.mark.slow

SQUARE = Graph(((1, 2), (2, 4), (1, 3), (3, 4)))
TOPIC = "flow/1"
VALID_MS = 6_000
LEASE = f"[steering]\nvalid_ms = {VALID_MS}\n"
FALLBACK_S, SLOW = 1.0, 10


def square(tmp_path):
    straight = {"routing": {"strategy": "shortest-path"}, "links": {"dial_back": False}}
    return RunningGrid(
        SQUARE, tmp_path, link_delay_ms=2.0, agent_options=straight, broker_options=(*QUICK, *DEEP)
    )


async def around(grid, cut_off=None, **how):
    """Plan by hand that the flow goes by 3; ``cut_off`` hears of it once, and for seconds only."""
    one, _, three, four = SQUARE.ids
    tree = tree_of(one, [TOPIC], {three: one, four: three})
    for id_ in (one, three, four):
        until_ms = {"valid_ms": 3_000} if id_ == cut_off else {}
        told = plan(id_, tree, federation=FEDERATION, **how, **until_ms)
        await retain(grid.brokers[id_], told, FEDERATION)


def flow(grid):
    one, *_, four = SQUARE.ids
    return (
        Publisher(grid.brokers[one].port, TOPIC, client_id="p", rate_hz=100, qos=1),
        Subscriber(grid.brokers[four].port, TOPIC, client_id="s", qos=1),
    )


@contextlib.asynccontextmanager
async def flowing(tmp_path):
    """The square with a flow that gets through, and the number of a publication that came."""
    async with square(tmp_path) as grid:
        publisher, subscriber = flow(grid)
        async with running(publisher, subscriber):
            await gets_through(publisher, subscriber)
            yield grid, publisher, subscriber, max(subscriber.came)


def by_a_tree(planned):
    def fault(pages):
        found = any(flow["planned"] for p in pages.values() for flow in p["flows"]["heaviest"])
        return None if found == planned else f"planned: {found}, {planned} wanted"

    return fault


async def all_came(publisher, subscriber, first):
    publisher.pause()
    await until(lambda: all(subscriber.came[n] for n in range(first, publisher.sent)), "all came")
    assert subscriber.duplicates == 0


@pytest.mark.parametrize("cut", [(1, 3), (3, 4)])
async def test_a_planned_link_that_is_cut_is_gone_around_at_once(tmp_path, cut):
    async with flowing(tmp_path) as (grid, publisher, subscriber, first):
        await around(grid)
        await grid.until(by_a_tree(True))
        await gets_through(publisher, subscriber)

        cut_s = time.monotonic()
        await grid.order("cut", Link(*cut))
        await gets_through(publisher, subscriber)

        gap_s = subscriber.longest_gap_s(cut_s, time.monotonic())
        assert gap_s < FALLBACK_S * SLOW, f"{gap_s:.2f} s"
        await grid.order("heal", Link(*cut))
        await grid.until(grid.links_up)
        await all_came(publisher, subscriber, first)


@pytest.mark.parametrize("act", ["kill9", "pause"])
@pytest.mark.few(1)
async def test_a_steerer_that_is_silent_leaves_nothing_behind(tmp_path, act):
    async with square(tmp_path) as grid:
        publisher, subscriber = flow(grid)
        urls = [broker.url for broker in grid.brokers.values()]
        key = f'federation = "{FEDERATION}"'
        steerer = SteererProcess(tmp_path / "steerer", *urls, keys=key, sections=LEASE)
        async with running(publisher, subscriber), steerer:
            await gets_through(publisher, subscriber)
            first = max(subscriber.came)
            await grid.until(lambda pages: None if holding(pages) == 4 else "nobody steers")

            getattr(steerer, act)()
            await grid.until(lambda pages: "somebody steers" if holding(pages) else None)
            await gets_through(publisher, subscriber)
            if act == "pause":
                steerer.resume()
                await grid.until(lambda pages: None if holding(pages) == 4 else "nobody steers")
            await all_came(publisher, subscriber, first)


@pytest.mark.parametrize("which", [0, 2])  # the origin, and one on the way
async def test_a_broker_that_the_steerer_does_not_reach_any_more_goes_on_by_itself(tmp_path, which):
    async with flowing(tmp_path) as (grid, publisher, subscriber, first):
        await around(grid, cut_off=SQUARE.ids[which])
        await grid.until(lambda pages: None if holding(pages) == 3 else "not all were told")
        await gets_through(publisher, subscriber)

        await grid.until(lambda pages: None if holding(pages) == 2 else "it still obeys")
        await gets_through(publisher, subscriber)

        await all_came(publisher, subscriber, first)


@pytest.mark.parametrize("wrong_ms", [3_600_000, -3_600_000])
async def test_a_steerer_whose_clock_is_wrong_is_not_obeyed(tmp_path, wrong_ms):
    async with flowing(tmp_path) as (grid, publisher, subscriber, first):
        await around(grid, wrong_ms=wrong_ms)
        await grid.until(
            lambda pages: (
                None
                if sum(p["steering"]["refused"] for p in pages.values()) == 3
                else "not all refused"
            )
        )
        assert holding(await grid.pages("/status")) == 0
        await gets_through(publisher, subscriber)
        await all_came(publisher, subscriber, first)


def holding(pages):
    return sum(page["steering"]["steerer"] is not None for page in pages.values())

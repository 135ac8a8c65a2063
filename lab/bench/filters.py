"""One agent with very many filters: what a lookup costs, what they weigh, what a lost link costs.

Lookups are timed on the forwarding table alone. The rest happens to a real agent: two of them, each
with its broker and a client that subscribes half of the filters there, so that each holds its own
half and the half that the other one announces. Then the other broker is killed. The first agent
takes all those routes back in one go, and answers nobody meanwhile: the longest answer is the
stall.
"""

import asyncio
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from federator.errors import LinkError
from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.types import BrokerId
from lab.bench.processor import resident_mb
from lab.grid.processes import children
from lab.grid.running import RunningGrid
from lab.grid.stage import Pages
from lab.grid.topology import Graph

KNOWN_TIMEOUT_S: Final = 120.0
LOSS_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.02
STEP: Final = 500
BEAT_S: Final = 0.002
BEATS_AFTER_LOSS_S: Final = 2.0

TOPICS: Final = 20_000
ROUNDS: Final = 10
NEIGHBOURS: Final = 8

HERE, THERE = BrokerId(1), BrokerId(2)


@dataclass(frozen=True, slots=True)
class FilterCosts:
    """What a table of ``filters`` costs. Times of lookups are per lookup."""

    filters: int
    cached_us: float  # A topic whose route is remembered
    uncached_us: float  # A topic never asked before
    resident_mb: float  # the agent, in 10**6 bytes
    resident_empty_mb: float  # the same agent without filters
    loss_stall_ms: float  # the agent's longest silence after the other broker was killed


def made_up_filters(count: int) -> list[str]:
    kinds = ("line{}/machine{}/t", "line{}/+/m{}", "line{}/machine{}", "l{}/m{}/#")
    return [f"site/{kinds[n % 4].format(n // 1_000, n)}" for n in range(count)]


def lookup_us(filters: list[str]) -> tuple[float, float]:
    """Microseconds of a cached and of an uncached lookup in a table of ``filters``."""
    forwarder = Forwarder()
    for number, filter in enumerate(filters):
        hop = BrokerId(1 + number % NEIGHBOURS)
        forwarder.set_route(filter, FilterRoute(local=False, wanted=True, next_hops=(hop,)))
    topics = [_topic_for(filters[n * len(filters) // TOPICS], n) for n in range(TOPICS)]
    topics = list(dict.fromkeys(topics))
    gc.collect()
    uncached = _time_lookups(forwarder, topics)
    cached = min(_time_lookups(forwarder, topics) for _ in range(ROUNDS))
    return cached, uncached


def _topic_for(filter: str, number: int) -> str:
    return filter.replace("+", f"x{number}").replace("#", f"y{number}")


def _time_lookups(forwarder: Forwarder, topics: list[str]) -> float:
    route_topic = forwarder.route_topic
    start = time.perf_counter()
    for topic in topics:
        if route_topic(topic) is None:
            raise LinkError(f"no route for {topic}, although a filter matches it")
    return (time.perf_counter() - start) / len(topics) * 1e6


async def measure_filters(
    folder: Path, *, filters: int, progress: Callable[[int], None] = lambda known: None
) -> FilterCosts:
    """Measure an agent with ``filters`` filters.

    Raises ``LinkError``: the agents did not come to know them all in time.
    """
    table = made_up_filters(filters)
    cached_us, uncached_us = lookup_us(table)
    async with _pair(folder / "empty") as pair:
        empty_mb = resident_mb(pair.agents[HERE].pid)
    async with _pair(folder / "full") as pair:
        await _subscribe(pair, table, progress)
        full_mb = resident_mb(pair.agents[HERE].pid)
        stall_ms = await _stall_ms(pair)
    return FilterCosts(filters, cached_us, uncached_us, full_mb, empty_mb, stall_ms)


def _pair(folder: Path) -> RunningGrid:
    return RunningGrid(Graph(((HERE, THERE),)), folder, link_delay_ms=0, spawn=children.spawn)


async def _subscribe(
    pair: RunningGrid, filters: list[str], progress: Callable[[int], None]
) -> None:
    """Subscribe half of ``filters`` at each broker; returns when both agents know them all.

    The broker keeps 1,000 log lines for an agent that does not keep up, so each step waits.
    """
    known = 0
    for here, wanted in ((THERE, filters[1::2]), (HERE, filters[::2])):
        client = await pair.client(here, f"many-filters-{here}")
        for at in range(0, len(wanted), STEP):
            step = wanted[at : at + STEP]
            client.subscribe(step, qos=0)
            known += len(step)
            await pair.until(partial(unknown, known), within_s=KNOWN_TIMEOUT_S, poll_s=POLL_S)
            progress(known)


def unknown(wanted: int, pages: Pages) -> str | None:
    """Whether agents are not linked yet, or do not know so many filters; in words."""
    linked = all(
        page["ready"] and page["links"] and all(link["state"] == "up" for link in page["links"])
        for page in pages.values()
    )
    known = [page["meshes_total"] for page in pages.values()]
    enough = linked and min(known) >= wanted
    return None if enough else f"agents know {known} filters, {wanted} wanted"


async def _stall_ms(pair: RunningGrid) -> float:
    """Kill the other broker; the longest time until our agent answered meanwhile, in ms."""
    agent = pair.agents[HERE]
    pair.brokers[THERE].kill9()
    deadline = time.monotonic() + LOSS_TIMEOUT_S
    longest, settled_s = 0.0, 0.0
    while not settled_s or time.monotonic() < settled_s + BEATS_AFTER_LOSS_S:
        start = time.monotonic()
        await agent.ready()
        longest = max(longest, time.monotonic() - start)
        await asyncio.sleep(BEAT_S)
        if not settled_s and longest > 0.01:
            settled_s = time.monotonic()
        if time.monotonic() > deadline:
            break
    return longest * 1_000

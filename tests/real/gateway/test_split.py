"""A split into two halves and back, and a controller deposed and returning: clients stay.

A ring of four brokers is cut into {1, 2} and {3, 4}. One gateway reaches the first half, one the
second, one all; each has four clients, who publish steadily at QoS 1 and hear everybody.

Here the split lasts until each half has a controller that has taken over for the other half, and
serves: some 6 s. As an experiment it lasts as long as you say, and tells what it saw
(docs/failover.md has the result for a minute)::

    SPLIT_S=60 python -m pytest -k each_half -o log_level=INFO -rA tests/real/gateway/test_split.py
"""

import asyncio
import contextlib
import logging
import os
import time
from collections import Counter
from itertools import product

import pytest

from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from lab.grid.running import RunningGrid
from lab.grid.topology import Grid
from tests.real.gateway.clients import V5, V311, GatewayClient, heard
from tests.real.plain_agents import DEEP, QUICK
from tests.real.polling import until, until_none

SPLIT_S = float(os.environ.get("SPLIT_S", "5"))
"""The split lasts at least so long: more than ``hello_timeout_ms`` and ``gone_after_ms``."""

NEAR, FAR = frozenset({1, 2}), frozenset({3, 4})
REACH = {"near": NEAR, "far": FAR, "both": NEAR | FAR}
CLIENTS_EACH = 4
RATE_HZ = 5
CHANGE_S_MAX = 60.0  # measured: 1.4 to 6 s
WATCH_S = 2.0
"""Longer than a returned controller takes to its office and gateways to obey it."""

ORPHAN_AFTER_MS = 3_000
"""So that clients of a broker whose agent is silent move, and could be moved back."""


class Federation:
    """Attributes: ``grid``; ``gateways`` by name; ``clients`` by gateway."""

    def __init__(self, grid, gateways):
        self.grid = grid
        self.gateways = gateways
        self.clients = {}

    @property
    def everybody(self):
        return [client for each in self.clients.values() for client in each]

    async def rows(self):
        """Broker and moves of each client, by its id."""
        found = {}
        for gateway in self.gateways.values():
            found |= await gateway.clients()
        return found

    async def moves(self):
        return {name: row["moves"] for name, row in (await self.rows()).items()}

    async def pages(self, brokers):
        return [await self.grid.agents[id_].page("/controller") for id_ in sorted(brokers)]

    async def agree(self, brokers, controller, taken_over):
        """Wait until the agents of ``brokers`` name this controller and exactly these takeovers."""
        end_s = time.monotonic() + CHANGE_S_MAX
        while True:
            pages = await self.pages(brokers)
            told = [(p["controller"], {t["broker"] for t in p["takeovers"]}) for p in pages]
            if all(each == (controller, set(taken_over)) for each in told):
                return
            assert time.monotonic() < end_s, f"{sorted(brokers)} say {told}"
            await asyncio.sleep(0.05)

    async def split(self, *, healed=False):
        """Cut what links the halves, or heal it."""
        for link in self.grid.grid.links:
            if (link.a in NEAR) != (link.b in NEAR):
                await self.grid.order("heal" if healed else "cut", link)


def clients_of(name, gateway):
    """Of both versions, with clean and with persistent sessions."""
    return [
        GatewayClient(
            gateway.port,
            f"{name}-{number}",
            version=V5 if number % 2 else V311,
            persistent=number < CLIENTS_EACH / 2,
            subscribes=("t/#",),
        )
        for number in range(CLIENTS_EACH)
    ]


@contextlib.asynccontextmanager
async def federation(folder, strategy):
    options = {
        "routing": {"strategy": strategy},
        "failover": {"orphan_after_ms": ORPHAN_AFTER_MS},
    }
    grid = RunningGrid(
        Grid(2, 2, first_id=1),
        folder,
        link_delay_ms=1,
        agent_options=options,
        broker_options=(*QUICK, *DEEP),
    )
    async with grid, contextlib.AsyncExitStack() as stack:
        gateways = {
            name: GatewayProcess(
                folder / name, GatewayConfig(name, {id_: grid.brokers[id_].url for id_ in reach})
            )
            for name, reach in REACH.items()
        }
        await asyncio.gather(*(stack.enter_async_context(each) for each in gateways.values()))
        made = Federation(grid, gateways)
        await made.agree(NEAR | FAR, 1, ())
        made.clients = {name: clients_of(name, gateway) for name, gateway in gateways.items()}
        await asyncio.gather(*(stack.enter_async_context(each) for each in made.everybody))
        yield made
        await stack.aclose()
        for gateway in gateways.values():
            assert "Traceback" not in gateway.log_path.read_text()


def lost(readers, writers, since, end=None):
    """What of a writer's acknowledged publications, from ``since`` to ``end``, a reader lacks."""
    end = end or acknowledged(writers)
    return [
        (reader.client_id, payload)
        for reader in readers
        for writer in writers
        for payload in writer.acknowledged[since[writer.client_id] : end[writer.client_id]]
        if payload not in reader.came
    ]


def acknowledged(clients):
    return {client.client_id: len(client.acknowledged) for client in clients}


async def all_comes(readers, writers, what):
    """Wait until five more of each writer's are acknowledged, and those came to all readers."""
    since = acknowledged(writers)
    await until(
        lambda: all(len(w.acknowledged) >= since[w.client_id] + 5 for w in writers),
        f"{what}: publications are acknowledged",
    )
    end = acknowledged(writers)
    await until_none(lambda: lost(readers, writers, since, end), what)


@contextlib.asynccontextmanager
async def traffic(made):
    """Everybody publishes meanwhile; in the end nothing acknowledged is lost to anybody.

    Yields:
        By reader, of each writer the first publication that counts.
    """
    stop = asyncio.Event()
    everybody = made.everybody
    flows = [
        asyncio.create_task(c.publish(f"t/{c.client_id}", rate_hz=RATE_HZ, stop=stop))
        for c in everybody
    ]
    first = await heard(product(everybody, everybody))
    await all_comes(everybody, everybody, "before")
    since = {c.client_id: first for c in everybody}
    yield since
    await all_comes(everybody, everybody, "after")
    stop.set()
    await asyncio.gather(*flows)

    def missing():
        return [each for c in everybody for each in lost([c], everybody, since[c.client_id])]

    await until_none(missing, "in all")
    assert [c.client_id for c in everybody if c.error] == []
    tell(
        "%d publications acknowledged, for each of %d clients; %d copies came twice",
        sum(len(c.acknowledged) for c in everybody),
        len(everybody),
        sum(c.came.total() - len(c.came) for c in everybody),
    )


def tell(text, *values):
    logging.getLogger(__name__).info(text, *values)


@pytest.mark.parametrize("strategy", ["mesh", "shortest-path"])
@pytest.mark.few(1)
async def test_in_a_split_each_half_serves_its_clients_and_nobody_is_moved(tmp_path, strategy):
    async with federation(tmp_path, strategy) as made, traffic(made):
        homes = {name: row["broker"] for name, row in (await made.rows()).items()}
        on = {
            half: [c for c in made.everybody if homes[c.client_id] in half] for half in (NEAR, FAR)
        }
        assert all(len(clients) > CLIENTS_EACH for clients in on.values()), "some of 'both'"

        cut_s = time.monotonic()
        await made.split()
        await made.agree(NEAR, 1, FAR)
        await made.agree(FAR, 3, NEAR)
        tell("%s: two controllers %.1f s after the cut", strategy, time.monotonic() - cut_s)
        await asyncio.gather(*(all_comes(c, c, "within a half") for c in on.values()))
        await asyncio.sleep(max(0.0, cut_s + SPLIT_S - time.monotonic()))
        await asyncio.gather(*(all_comes(c, c, "in a half, to the end") for c in on.values()))
        far_only = made.clients["far"]
        assert lost(far_only, on[NEAR], {c.client_id: 0 for c in on[NEAR]}), "it was a split"

        healed_s = time.monotonic()
        await made.split(healed=True)
        await made.agree(NEAR | FAR, 1, ())
        tell("%s: split for %.1f s", strategy, healed_s - cut_s)
        tell("%s: one controller %.1f s after", strategy, time.monotonic() - healed_s)
        await asyncio.sleep(WATCH_S)
        moves = await made.moves()
        tell("%s: clients by moves: %s", strategy, dict(Counter(moves.values())))
        assert set(moves.values()) == {0}


@pytest.mark.parametrize("strategy", ["mesh", "shortest-path"])
@pytest.mark.few(1)
async def test_the_late_word_of_a_deposed_controller_moves_nobody(tmp_path, strategy):
    """Who was moved may miss what was published elsewhere while nobody minded its broker."""
    async with federation(tmp_path, strategy) as made, traffic(made) as since:
        homes = {name: row["broker"] for name, row in (await made.rows()).items()}
        hurt = {name for name, home in homes.items() if home == 1}
        assert hurt

        made.grid.agents[1].pause()
        await made.agree({2, 3, 4}, 2, {1})

        async def left():
            rows = (await made.rows()).values()
            return all(row["broker"] != 1 and row["state"] == "live" for row in rows)

        await until(left, "clients leave a broker that nobody minds", deadline_s=CHANGE_S_MAX)
        moved = [c for c in made.everybody if c.client_id in hurt]
        since |= dict.fromkeys(hurt, await heard(product(moved, made.everybody)))
        await all_comes(made.everybody, made.everybody, "while the agent is silent")
        made.grid.agents[1].resume()
        await made.agree(NEAR | FAR, 1, ())
        await asyncio.sleep(WATCH_S)

        moves = await made.moves()
        tell("%s: clients by moves: %s", strategy, dict(Counter(moves.values())))
        assert {name for name, times in moves.items() if times == 1} == hurt
        assert max(moves.values()) == 1

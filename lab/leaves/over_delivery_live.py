"""The same on real brokers and agents, at the default bound: what the hub itself counts.

A few leaves stand for many, each with the wishes of several sites, so the hub's cover is of the
same size. A client at another hub publishes what the world would.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from federator.protocol.filters import FilterTrie
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import MqttLink
from lab.grid.processes.agent import AgentProcess
from lab.grid.stage import DEEP, Stage
from lab.grid.waiting import until
from lab.leaves.naming import Naming, Publication
from lab.leaves.over_delivery import Carried, size_of

NEAR, FAR = BrokerId(1), BrokerId(2)
LEAVES: Final = tuple(map(BrokerId, (11, 12, 13, 14)))
PATIENCE_S: Final = 60.0
QUIET_S: Final = 3.0
POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Counted:
    """What a hub counted of the first and the second half of what was published."""

    filters_asked: int
    first: Carried
    then: Carried


async def counted(
    folder: Path, naming: Naming, *, seed: int, skew: float, publications: int
) -> Counted:
    """Measure it.

    Raises:
        LinkError: Something was not there in time, or what is wanted did not come once.
    """
    wishes = naming.wanted(seed)
    drawn = list(islice(naming.traffic(seed, skew=skew), publications))
    async with Stage(folder, broker_options=DEEP) as stage:
        for id in (NEAR, FAR, *LEAVES):
            await stage.broker(id)
        near = await stage.agent(NEAR, {FAR: stage.brokers[FAR].url}, leaves=LEAVES)
        await stage.agent(FAR, {NEAR: stage.brokers[NEAR].url})
        filters = [f for site in sorted(wishes) for f in wishes[site]]
        each, wanting = -(-len(filters) // len(LEAVES)), 0
        for at, leaf in enumerate(LEAVES):
            share = set(filters[at * each : (at + 1) * each])
            await stage.agent(leaf, {NEAR: stage.brokers[NEAR].url}, role="leaf")
            await stage.client(leaf, "shoppers", *sorted(share))
            wanting += len(share)
        await stage.told(
            NEAR,
            lambda now: sum(leaf["filters_wanted"] for leaf in now["leaves"]) == wanting,
            "leaves' wishes at their hub",
        )
        asked = await _steady(near)
        await stage.told(
            FAR,
            lambda now: any(
                core["core"] == NEAR and core["filters"] >= asked for core in now["cores"]
            ),
            "the hub's wishes in the mesh",
        )
        publisher = (await stage.client(FAR, "world")).link
        await asyncio.sleep(QUIET_S)  # until the far broker granted what is asked of it
        half = publications // 2
        first = await _published(publisher, near, drawn[:half], filters)
        then = await _published(publisher, near, drawn[half:], filters)
        return Counted(asked, first, then)


async def _steady(hub: AgentProcess) -> int:
    loop = asyncio.get_running_loop()
    asked, since_s = -1, loop.time()
    while loop.time() < since_s + QUIET_S:
        now = (await hub.status())["hub"]["filters_asked"]
        if now != asked:
            asked, since_s = now, loop.time()
        await asyncio.sleep(POLL_S)
    return asked


async def _published(
    publisher: MqttLink, hub: AgentProcess, drawn: Sequence[Publication], filters: Sequence[str]
) -> Carried:
    wishes = FilterTrie()
    for filter_ in filters:
        wishes.add(filter_)
    owed = sum(size_of(*each) for each in drawn if wishes.overlaps(each[0]))
    before = (await hub.status())["hub"]["mesh"]
    for topic, payload in drawn:
        while not publisher.publish(topic, payload, qos=1):  # noqa: ASYNC110 - its queue is full
            await asyncio.sleep(POLL_S / 50)
    wanted = 0

    async def all_came() -> Carried | None:
        nonlocal wanted
        after = (await hub.status())["hub"]["mesh"]
        size, in_vain = (after[key] - before[key] for key in ("bytes", "bytes_in_vain"))
        wanted = size - in_vain
        done = wanted == owed and not publisher.unacknowledged
        return Carried(size, in_vain) if done else None

    missing = lambda: f"{wanted} bytes that were wanted came, and {owed} were owed"  # noqa: E731
    carried: Carried = await until(all_came, missing, deadline_s=PATIENCE_S, poll_s=POLL_S)
    return carried

"""What publications suffer on the way, by TCP and in datagrams, in one run.

For each transport and QoS: agents start afresh, some seconds of the same traffic let them learn
what the roads lose, then the flow that counts. With datagrams, repair packets and parts of that
time are compared with what the model asks for at the roads' true loss. At the end the roads lose
nothing more, and what datagrams cost then is measured, too.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from federator.bench.lossy.stage import MQTT_PORT, Stage, address_of
from federator.errors import LinkError
from federator.grid.children import Helper, python
from federator.protocol.datagrams.protection import repairs_for
from federator.protocol.datagrams.sender import Limits

TOPIC: Final = "measured/flow"
TRANSPORTS: Final = ("tcp", "udp-fec")
SETTLE_S: Final = 60.0
POLL_S: Final = 0.25
BATCH: Final = 50


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured."""

    hops: int = 3
    delay_ms: float = 50.0
    plr: float = 0.02
    abl: float = 2.0
    rate_hz: float = 100.0
    count: int = 6_000
    learning: int = 3_000
    forgetting: int = 10_000
    qos: tuple[int, ...] = (0, 1)
    seed: int = 1
    udp: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """One flow. Delays in milliseconds; bytes are those of IP packets on all roads, both ways.

    Attributes:
        repairs_per_part: Repair packets beside each packet of data; ``None`` over TCP.
        model: The same, as asked for by the model at the roads' true loss.
    """

    transport: str
    qos: int
    plr: float
    offered: int
    delivered: int
    twice: int
    p50: float
    p95: float
    p99: float
    worst: float
    bytes_per_publication: float
    lost_packets: float
    repairs_per_part: float | None = None
    model: float | None = None
    by_broker: int | None = None


async def measure(plan: Plan, folder: Path, *, progress: Callable[[str], None]) -> list[Row]:
    """Run all flows.

    Raises:
        LinkError: Something did not start.
    """
    rows: list[Row] = []
    async with Stage(folder, hops=plan.hops, delay_ms=plan.delay_ms, seed=plan.seed) as stage:
        for qos in plan.qos:
            for transport in TRANSPORTS:
                progress(f"{transport}, QoS {qos}")
                await stage.roads(plr=0.0, abl=1.0)
                await stage.start_agents(transport, plan.udp)
                await stage.until_linked(transport)
                rows += await _flows(plan, stage, transport, qos, folder, progress)
                await stage.stop_agents()
    return rows


async def _flows(
    plan: Plan,
    stage: Stage,
    transport: str,
    qos: int,
    folder: Path,
    progress: Callable[[str], None],
) -> list[Row]:
    name = f"{transport}-{qos}"
    clients = [
        _client(stage, at, role, name=name, qos=qos, folder=folder)
        for role, at in (("subscriber", stage.brokers[-1]), ("publisher", stage.brokers[0]))
    ]
    subscriber, publisher = clients
    try:
        for client in clients:
            await client.start()
        await _until_through(publisher, subscriber)
        await stage.roads(plr=plan.plr, abl=plan.abl)
        await _ask(publisher, publish=plan.learning, rate_hz=plan.rate_hz)
        rows = [await _flow(plan, stage, publisher, subscriber, transport, qos, plan.plr)]
        if qos == 0:
            progress(f"{transport}, without loss")
            await stage.roads(plr=0.0, abl=1.0)
            if transport != "tcp":
                await _ask(publisher, publish=plan.forgetting, rate_hz=plan.rate_hz)
            rows.append(await _flow(plan, stage, publisher, subscriber, transport, qos, 0.0))
        return rows
    finally:
        for client in clients:
            await client.stop()


async def _flow(
    plan: Plan,
    stage: Stage,
    publisher: Helper,
    subscriber: Helper,
    transport: str,
    qos: int,
    plr: float,
) -> Row:
    """Publish, wait until nothing more comes, and sum up."""
    await _quiet(subscriber)
    before, spent = await _datagrams(stage, transport), await stage.roads()
    first = (await _ask(publisher, publish=plan.count, rate_hz=plan.rate_hz))["first"]
    after, passed = await _datagrams(stage, transport), await stage.roads()
    came = [
        (number, delay_us)
        for number, delay_us in await _quiet(subscriber)
        if first <= number < first + plan.count
    ]
    delays: dict[int, int] = {}
    for number, delay_us in came:
        delays.setdefault(number, delay_us)
    ordered = sorted(delays.values())
    if not ordered:
        raise LinkError(f"{transport}: nothing arrived")
    packets = sum(passed[way]["packets"] - spent[way]["packets"] for way in passed)
    lost = sum(passed[way]["lost"] - spent[way]["lost"] for way in passed)
    used = sum(passed[way]["bytes"] - spent[way]["bytes"] for way in passed)
    row: dict[str, Any] = {
        "transport": transport,
        "qos": qos,
        "plr": plr,
        "offered": plan.count,
        "delivered": len(delays),
        "twice": len(came) - len(delays),
        "p50": _quantile(ordered, 0.5),
        "p95": _quantile(ordered, 0.95),
        "p99": _quantile(ordered, 0.99),
        "worst": ordered[-1] / 1_000,
        "bytes_per_publication": used / plan.count,
        "lost_packets": lost / max(1, packets),
    }
    if before is not None and after is not None:
        spent_on = {key: after[key] - before[key] for key in after}
        row["repairs_per_part"] = spent_on["repairs"] / max(1, spent_on["parts"])
        row["model"] = _model(spent_on, plr, plan)
        row["by_broker"] = spent_on["given_back"]
    return Row(**row)


def _model(spent: dict[str, int], plr: float, plan: Plan) -> float:
    """Repair packets per part that blocks of the mean length need on such a road."""
    limits = Limits()
    failing_max = plan.udp.get("failing_ppm", limits.failing_max * 1_000_000) / 1_000_000
    length = spent["parts"] / max(1, spent["blocks"])
    short, share = int(length), length % 1
    needed = [
        repairs_for(
            max(1, parts), plr, plan.abl, failing_max=failing_max, repairs_max=limits.repairs_max
        )
        for parts in (short, short + 1)
    ]
    return (needed[0] * (1 - share) + needed[1] * share) / length


def _quantile(ordered_us: list[int], share: float) -> float:
    """Of so many, ``share`` are at most this, in milliseconds; a missing one is not among them."""
    return ordered_us[min(len(ordered_us) - 1, int(len(ordered_us) * share))] / 1_000


async def _datagrams(stage: Stage, transport: str) -> dict[str, int] | None:
    """What all links towards the subscriber sent so far."""
    if transport == "tcp":
        return None
    total = {"parts": 0, "repairs": 0, "blocks": 0, "given_back": 0}
    for i in stage.brokers[:-1]:
        status = await stage.status(i)
        for link in status["links"] if status is not None else []:
            if link["neighbour"] == i + 1:
                for key in total:
                    total[key] += link["datagrams"]["out"][key]
    return total


def _client(stage: Stage, at: int, role: str, *, name: str, qos: int, folder: Path) -> Helper:
    order = {
        "role": role,
        "host": address_of(at),
        "port": MQTT_PORT,
        "topic": TOPIC,
        "qos": qos,
        "client_id": f"{role}-{name}",
    }
    command = stage.inside(at, python("federator.bench.lossy.client", json.dumps(order)))
    return Helper(command, log=folder / f"{role}-{name}.log")


async def _ask(client: Helper, **order: float) -> dict[str, Any]:
    await client.tell(order)
    return await client.hear()


async def _until_through(publisher: Helper, subscriber: Helper) -> None:
    """Publish until all of a batch arrives."""
    async with asyncio.timeout(SETTLE_S):
        while True:
            await _ask(subscriber, came=1)
            await _ask(publisher, publish=BATCH, rate_hz=BATCH)
            if len(await _quiet(subscriber)) >= BATCH:
                return


async def _quiet(subscriber: Helper) -> list[tuple[int, int]]:
    """All that came, once nothing more comes for two seconds."""
    came: list[tuple[int, int]] = []
    silent_s = 0.0
    while silent_s < 2.0:
        await asyncio.sleep(POLL_S)
        more = (await _ask(subscriber, came=1))["came"]
        silent_s = 0.0 if more else silent_s + POLL_S
        came += more
    return came

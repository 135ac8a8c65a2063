"""Three hubs and twelve leaves, each with a hub in reserve: what leaves' clients feel of a death.

Real brokers and agents on loopback. First how soon a subscription counts; then streams at QoS 1
from leaf to leaf, of which one end or both hang on the hub that dies, machine and all, and later
comes back; then a leaf that is cut off from both its hubs for a while.

Source: docs/hubs.md, "A hub in reserve".
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import MqttLink
from lab.frame.experiment import Result, Tell, experiment
from lab.frame.settings import setting
from lab.grid.clients import Arrivals, Client
from lab.grid.stage import DEEP, Pages, Stage
from lab.grid.streams import Stream, flowing, linked, running
from lab.grid.waiting import until

HUBS: Final = tuple(map(BrokerId, (1, 2, 3)))
LEAVES: Final = {BrokerId(11 + n): (HUBS[n % 3], HUBS[(n + 1) % 3]) for n in range(12)}
"""Each leaf's preferred hub, and the one in reserve."""

DIES: Final = HUBS[0]
CUT_OFF: Final = BrokerId(12)
WAYS: Final = ((11, 12), (12, 11), (14, 13), (16, 17), (18, 15), (13, 12))
"""From leaf to leaf: 11, 14 and 17 prefer the hub that dies, and 13, 16 have it in reserve."""

FLOWS_S: Final = 8.0
"""Before anything goes wrong; longer than what is looked back upon."""

RETURN_AFTER_S: Final = 5
FRESH_HZ: Final = 500.0
GAP_S_MAX: Final = 1.0
FIRST_MS_MAX: Final = 50.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How fast streams are, and how long hubs are away."""

    rate_hz: float = setting(300.0, "msg/s, QoS 1.", 1, 2_000, option="--rate")
    away_s: float = setting(15.0, "Seconds without the hub.", 1, 600, option="--away")
    cut_s: float = setting(
        60.0,
        "Seconds for which a leaf is cut off from both its hubs; 0: it is not.",
        least=0,
        most=3_600,
        option="--cut",
    )
    fresh: int = setting(20, "Subscriptions that are timed.", 0, 1_000)


@dataclass(frozen=True, slots=True)
class Outcome(Result):
    """What the leaves' clients felt."""

    first_ms: float  # from SUBACK to the first publication, the median
    gap_s: float  # the longest silence of any stream around the death
    arrivals: dict[tuple[int, int], Arrivals]

    @property
    def held(self) -> bool:
        exact = all(each.exact for each in self.arrivals.values())
        return exact and self.gap_s < GAP_S_MAX and self.first_ms < FIRST_MS_MAX

    def lines(self) -> Iterator[str]:
        for (source, target), each in self.arrivals.items():
            yield f"leaf {source} to {target}: {each.sent} sent, {each}"
        yield f"longest silence {self.gap_s:.2f} s, first publication {self.first_ms:.1f} ms"


class _Stage(Stage):
    """Hubs, leaves, and the relays between them."""

    async def start(self) -> None:
        for id in (*HUBS, *LEAVES):
            await self.broker(id)
        for hub in HUBS:
            near = {other: self.brokers[other].url for other in HUBS if other != hub}
            leaves = tuple(leaf for leaf, hubs in LEAVES.items() if hub in hubs)
            await self.agent(hub, near, leaves=leaves)
        for leaf, hubs in LEAVES.items():
            near = {hub: await self.relayed(f"{leaf}>{hub}", hub) for hub in hubs}
            more = {"links": {"return_after_s": RETURN_AFTER_S}}
            await self.agent(leaf, near, role="leaf", more=more)
        await self.until(_unserved)

    async def cut(self, leaf: BrokerId, seconds: float) -> None:
        for act in ("cut", "heal"):
            for hub in LEAVES[leaf]:
                await self.relays.order(act, f"{leaf}>{hub}")
            await asyncio.sleep(seconds if act == "cut" else 0)


def _unserved(pages: Pages) -> str | None:
    for leaf, (hub, _) in LEAVES.items():
        now = pages[leaf]
        known = now["ready"] and not now["discovery"]["widened"]
        if not known or now["hubs"]["served_by"] != hub:
            return f"leaf {leaf} is not served by hub {hub}"
    return None


async def run(settings: Settings, folder: Path, tell: Tell) -> Outcome:
    """Run 3 hubs and 12 leaves, kill a hub under load, and cut a leaf off from both its hubs.

    Exits 0 when every publication arrived once and in order, no stream was silent for a second when
    the hub died, and a subscription counts within 50 ms; 1 otherwise.
    """
    away_s, cut_s, fresh = settings.away_s, settings.cut_s, settings.fresh
    async with _Stage(folder, broker_options=DEEP) as stage:
        tell(f"{len(HUBS)} hubs and {len(LEAVES)} leaves stand")
        first_ms = await _first_publications(stage, fresh)
        tell(f"first publication after a SUBSCRIBE: {first_ms:.1f} ms (median of {fresh})")
        streams = {
            way: stage.stream(*((f"leaf-{each}", BrokerId(each)) for each in way)) for way in WAYS
        }
        async with flowing(list(streams.values())):
            ended = asyncio.Event()
            each_hz = settings.rate_hz / len(streams)
            most = int(each_hz * (away_s + cut_s + 120))
            counting = asyncio.gather(*(s.until(ended, each_hz, most) for s in streams.values()))
            await asyncio.sleep(FLOWS_S)
            gap_s = await _death(stage, list(streams.values()), away_s, tell)
            if cut_s:
                tell(f"leaf {CUT_OFF} is cut off for {cut_s:g} s")
                await stage.cut(CUT_OFF, cut_s)
                await stage.until(_unserved)
                await asyncio.sleep(FLOWS_S)
            ended.set()
            return Outcome(first_ms, gap_s, dict(zip(streams, await counting, strict=True)))


async def _death(stage: _Stage, streams: Sequence[Stream], away_s: float, tell: Tell) -> float:
    for stream in streams:
        stream.subscriber.at_s = []
    await asyncio.sleep(1.0)
    killed_s = time.monotonic()
    stage.kill(DIES)
    await asyncio.sleep(away_s)
    gaps = [s.subscriber.longest_gap_s(killed_s - 0.1, killed_s + away_s) for s in streams]
    tell(f"hub {DIES} killed: the longest silence of a stream is {max(gaps):.2f} s")
    await stage.revive(DIES)
    await stage.until(_unserved)
    tell("it is back, and so are its leaves")
    await asyncio.sleep(FLOWS_S)
    return max(gaps)


async def _first_publications(stage: _Stage, count: int) -> float:
    """Milliseconds from a SUBACK to the first publication, across hubs; the median."""
    source, target = map(stage.endpoint, map(BrokerId, (11, 12)))
    found: list[float] = []
    for number in range(count):
        topic = f"fresh/{number}"
        publisher, subscriber = Client(source, "fresh-p"), Client(target, "fresh-s", topic)
        came_s: list[float] = []
        subscriber.at_s = came_s
        async with running(publisher.link.run(), _publish(publisher.link, topic)):
            await asyncio.sleep(0.2)
            async with linked(subscriber):
                granted_s = time.monotonic()
                await until(lambda: came_s, f"a publication on {topic}", poll_s=0.001)  # noqa: B023
                found.append(1_000 * (came_s[0] - granted_s))
    return median(found) if found else 0.0


async def _publish(link: MqttLink, topic: str) -> None:
    while True:
        await asyncio.sleep(1 / FRESH_HZ)
        if link.connected:
            link.publish(topic, b"0", qos=0)


command = experiment("hub-death", Settings, run)

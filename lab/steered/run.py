"""A demand that fits, on narrow links: what clients get of it with a steerer and without one.

The flows fit, but over shortest paths one link would have to carry more than it can. Spells without
and with a steerer take turns in one run, so that a noisy machine is noisy to both. Beside each: the
same ways at a fifth of the rates, which is what an uncongested path takes.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from federator.protocol.messages.topics import load_topic, plan_topic
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import Inbound, MqttLink
from lab.frame.experiment import Judged, Tell, Verdict, experiment
from lab.frame.settings import setting
from lab.grid.clients import Client
from lab.grid.running import FEDERATION, RunningGrid
from lab.grid.streams import linked
from lab.steered.drawing import picture
from lab.steered.narrow import (
    DEMANDS,
    FULLEST_MAX,
    KNOWN_AFTER_S,
    Spell,
    carried,
    narrow_grid,
    steerer_of,
)
from lab.steered.traffic import Demand, Flows, Share, flowing

LIGHT: Final = 0.2
FOLLOWED_WITHIN_S: Final = 30.0
P99_TIMES_MAX: Final = 1.3
CONTROL_SHARE_MAX: Final = 0.01


@dataclass(frozen=True, slots=True)
class Settings:
    """How long and how often, and where to draw it."""

    seconds: float = setting(20.0, "Of each spell.", 5, 600)
    turns: int = setting(2, "Without, then steered; so often.", 1, 20)
    svg: Path | None = setting(None, "Draw the links before and after.")


@dataclass(eq=False)
class Outcome(Judged):
    """Spells in the order in which they took turns."""

    plain: list[Spell] = field(default_factory=list)
    steered: list[Spell] = field(default_factory=list)
    light: list[Spell] = field(default_factory=list)  # by the planned ways, uncongested
    moved_s: list[float] = field(default_factory=list)  # from the steerer's start to its plan

    def verdicts(self) -> Iterator[Verdict]:
        lost = max(spell.lost_share for spell in self.steered)
        before = median(spell.lost_share for spell in self.plain)
        yield Verdict(f"lost {lost:.2%} (wanted 0), {before:.1%} without a steerer", lost == 0)
        fullest = max(spell.fullest for spell in self.steered)
        text = f"fullest link {fullest:.0%} of its capacity (wanted <= {FULLEST_MAX:.0%})"
        yield Verdict(text, fullest <= FULLEST_MAX)
        full, light = (
            median(spell.worst_ms(0.99) for spell in spells)
            for spells in (self.steered, self.light)
        )
        text = (
            f"p99 of the worst flow {full:.1f} ms, {full / light:.2f} times that of its ways"
            f" uncongested, {light:.1f} ms (wanted <= {P99_TIMES_MAX})"
        )
        yield Verdict(text, full <= P99_TIMES_MAX * light)
        moved_s = max(self.moved_s)
        text = f"a tree after {moved_s:.0f} s (wanted <= {FOLLOWED_WITHIN_S:.0f})"
        yield Verdict(text, moved_s <= FOLLOWED_WITHIN_S)
        share = max(spell.control_share for spell in self.steered)
        text = f"loads and plans {share:.2%} of the links' bytes (wanted < {CONTROL_SHARE_MAX:.0%})"
        yield Verdict(text, share < CONTROL_SHARE_MAX)


class _Words(Client):
    """Counts the bytes of loads and plans at a broker."""

    bytes = 0

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        self.bytes += sum(len(packet.payload) for packet, _, _ in publishes)


async def run(settings: Settings, folder: Path, tell: Tell) -> Outcome:
    """Overload a link of six real brokers by shortest paths, and see what steering makes of it.

    Exits 0 when everything wanted was shown, 1 otherwise.
    """
    outcome = Outcome()
    async with narrow_grid(folder) as grid:
        topics = load_topic(FEDERATION), plan_topic(FEDERATION)
        words = [
            _Words(grid.endpoint(id), f"overhears-{id}", *topics, qos=0) for id in grid.brokers
        ]

        async def spell(what: str, share: Share = lambda demand: 1.0) -> Spell:
            found = await _spell(grid, flows, words, settings.seconds, share)
            tell(
                f"turn {turn + 1}, {what}: {found.lost_share:.1%} lost, fullest link"
                f" {found.fullest:.0%}, worst flow p50 {found.worst_ms(0.5):.0f} ms,"
                f" p99 {found.worst_ms(0.99):.0f} ms"
            )
            return found

        async with flowing(grid, DEMANDS) as flows, linked(*words):
            await asyncio.sleep(KNOWN_AFTER_S)
            await flows.spell(2.0, _lightly)
            for turn in range(settings.turns):
                outcome.plain.append(await spell("without"))
                async with steerer_of(grid, folder / f"steerer-{turn}"):
                    outcome.moved_s.append(await _steered_within(grid, flows))
                    outcome.steered.append(await spell("steered"))
                    outcome.light.append(await spell("light", _lightly))
                await grid.until(_no_plan)
    if settings.svg is not None:
        settings.svg.write_text(picture(outcome.plain[-1], outcome.steered[-1]), encoding="utf-8")
        tell(f"drawn: {settings.svg}")
    return outcome


async def _steered_within(grid: RunningGrid, flows: Flows) -> float:
    """Go on publishing until some flow has a tree; how long that took, in seconds."""
    begun_s = time.monotonic()
    publishing = asyncio.create_task(flows.spell(FOLLOWED_WITHIN_S), name="before the plan")
    try:
        await grid.until(_planned, within_s=FOLLOWED_WITHIN_S)
        return time.monotonic() - begun_s
    finally:
        await publishing


async def _spell(
    grid: RunningGrid, flows: Flows, words: list[_Words], seconds: float, share: Share
) -> Spell:
    before, said = await carried(grid), sum(each.bytes for each in words)
    arrived = await flows.spell(seconds, share)
    after = await carried(grid)
    moved = {way: after[way] - before[way] for way in after}
    loads = {way: 8 * size / seconds for way, size in moved.items()}
    said = sum(each.bytes for each in words) - said
    return Spell(arrived, loads, said / sum(moved.values()))


def _lightly(demand: Demand) -> float:
    return LIGHT


def _planned(pages: Mapping[BrokerId, Mapping[str, Any]]) -> str | None:
    if not any(page["steering"]["trees"] for page in pages.values()):
        return "no flow has a tree"
    return None


def _no_plan(pages: Mapping[BrokerId, Mapping[str, Any]]) -> str | None:
    left = [here for here, page in pages.items() if page["steering"]["trees"]]
    return f"agents {left} follow trees" if left else None


command = experiment("steered", Settings, run)

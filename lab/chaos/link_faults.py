"""Faults of links: cut, partitioned, reset, silenced, half-open, slow.

They are done to the relays between the agents (``lab.grid.processes.relay``), whose counters also
tell whether they were felt.
"""

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import Final

from lab.chaos.stage import Act, Draw, Injury, Kind, Stage, soon
from lab.grid.topology import Link

CUT_S: Final = (1.0, 5.0, 10.0)
HURT_S: Final = (3.0, 6.0, 10.0)
"""Shorter and longer than the hello timeout."""

EXTRA_DELAY_MS: Final = (100.0, 200.0, 300.0)
RESETS: Final = 5
RESET_GAP_S: Final = 0.4

_BOTH, _THERE, _BACK = "both ways", "there", "back"
_WAYS: Final = (_BOTH, _THERE, _BACK)


def _injury(
    stage: Stage,
    kind: str,
    links: Sequence[Link],
    detail: str,
    hold_s: float,
    *,
    trace: str,
    hurt: Act,
    heal: Act = soon(lambda: None),  # noqa: B008
) -> Injury:
    """An injury of ``links`` whose relays' counter ``trace`` grows while it is felt."""
    before = 0

    async def inflict() -> None:
        nonlocal before
        before = await stage.grid.count(trace, *links)
        await hurt()

    async def felt() -> bool:
        return await stage.grid.count(trace, *links) > before

    victims = frozenset(f"link {link.a}-{link.b}" for link in links)
    return Injury(kind, victims, f"{detail}{hold_s:g} s", hold_s, inflict, heal, felt)


def _draw_cut(stage: Stage, rng: random.Random) -> Injury:
    link, hold_s = rng.choice(stage.grid.grid.links), stage.span_s(rng, CUT_S)
    return _cut(stage, "link-cut", [link], "", hold_s)


def _draw_partition(stage: Stage, rng: random.Random) -> Injury:
    """Cut every link between two halves: the brokers nearest to a drawn one, and the others."""
    grid = stage.grid.grid
    hops = grid.hops_from(rng.choice(grid.ids))
    near = set(sorted(grid.ids, key=lambda here: (hops[here], here))[: len(grid.ids) // 2])
    between = [link for link in grid.links if (link.a in near) != (link.b in near)]
    hold_s = stage.span_s(rng, HURT_S)
    return _cut(stage, "partition", between, f"{sorted(near)} from the rest, ", hold_s)


def _cut(stage: Stage, kind: str, links: Sequence[Link], detail: str, hold_s: float) -> Injury:
    hurt, heal = (partial(stage.grid.order, act, *links) for act in ("cut", "heal"))
    return _injury(stage, kind, links, detail, hold_s, trace="broken", hurt=hurt, heal=heal)


def _draw_reset(stage: Stage, rng: random.Random) -> Injury:
    link = rng.choice(stage.grid.grid.links)

    async def hurt() -> None:
        for _ in range(RESETS):
            await stage.grid.order("reset", link)
            await asyncio.sleep(RESET_GAP_S)

    detail = f"{RESETS} times, "
    return _injury(stage, "link-reset", [link], detail, 0.0, trace="broken", hurt=hurt)


def _draw_silence(stage: Stage, rng: random.Random) -> Injury:
    link, hold_s = rng.choice(stage.grid.grid.links), stage.span_s(rng, HURT_S)
    way = rng.choice(_WAYS)
    hurt = partial(_one_way_or_both, stage, "silence", link, way)
    heal = partial(stage.grid.order, "heal", link)
    how = {"hurt": hurt, "heal": heal}
    return _injury(stage, "link-silence", [link], f"{way}, ", hold_s, trace="stuck", **how)


def _draw_half_open(stage: Stage, rng: random.Random) -> Injury:
    link, hold_s = rng.choice(stage.grid.grid.links), stage.span_s(rng, HURT_S)
    way = rng.choice(_WAYS)
    hurt = partial(_one_way_or_both, stage, "swallow", link, way)
    detail = f"{way}, for good, watched for "
    return _injury(stage, "half-open", [link], detail, hold_s, trace="swallowed", hurt=hurt)


async def _one_way_or_both(stage: Stage, act: str, link: Link, way: str) -> None:
    if way == _BOTH:
        await stage.grid.order(act, link)
    else:
        ends = (link.a, link.b) if way == _THERE else (link.b, link.a)
        await stage.grid.order_one_way(act, *ends)


def _draw_delay(stage: Stage, rng: random.Random) -> Injury:
    grid = stage.grid
    link, hold_s = rng.choice(grid.grid.links), stage.span_s(rng, HURT_S)
    extra_ms, usual_ms = rng.choice(EXTRA_DELAY_MS), grid.link_delay_ms
    hurt = partial(grid.order, "delay", link, delay_ms=usual_ms + extra_ms)
    heal = partial(grid.order, "delay", link, delay_ms=usual_ms)
    how, detail = {"hurt": hurt, "heal": heal}, f"{extra_ms:g} ms more, "
    return _injury(stage, "link-delay", [link], detail, hold_s, trace="chunks", **how)


def _kind(name: str, what: str, draw: Draw) -> Kind:
    return Kind(name, what, draw, lambda stage: "" if stage.grid.grid.links else "no links")


_HALF_OPEN: Final = "a link's connections swallow all bytes, one way or both, until given up"

LINK_FAULTS: Final = (
    _kind("link-cut", "a link's connections reset, new ones refused", _draw_cut),
    _kind("partition", "every link between two halves cut", _draw_partition),
    _kind("link-reset", f"a link's connections reset {RESETS} times", _draw_reset),
    _kind("link-silence", "a link carries nothing, one way or both", _draw_silence),
    _kind("half-open", _HALF_OPEN, _draw_half_open),
    _kind("link-delay", "a link takes 100 to 300 ms more", _draw_delay),
)

"""Faults, and which come after which: drawn from the seed alone, never from what the clock says.

Faults of links are cuts, partitions, resets, silence, half-open connections and delays, done to the
relays between the agents (``lab.grid.processes.relay``), whose counters also tell whether they were
felt. Faults of processes are brokers and agents killed, restarted, paused, and out of disk space;
what they may cost depends on whom they hit, so kills are classes by the broker's role.

A fault bends no promise: the ledger decides message by message what a dead broker took with it, so
classes can be mixed (docs/guarantees.md). Rounds follow each other without end. In each, every
class comes once, in a drawn order, and mixtures of two or three injuries come between; the run
takes as many as it has time for. Injuries of a mixture have different victims and begin a little
apart, so their order differs from one to the next.
"""

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from federator.protocol.types import BrokerId
from lab.chaos.layout import Layout
from lab.chaos.stage import Act, Draw, Injury, Kind, Stage, soon
from lab.chaos.strangers import STRANGERS
from lab.grid.processes.children import Child
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


def _of_links(name: str, what: str, draw: Draw) -> Kind:
    return Kind(name, what, draw, lambda stage: "" if stage.grid.grid.links else "no links")


BROKER_AWAY_S: Final = (1.0, 5.0)
AGENT_AWAY_S: Final = (1.0, 5.0, 10.0)
RESTART_S: Final = 1.0

ROLES: Final[dict[str, Callable[[Layout], tuple[BrokerId, ...]]]] = {
    "origin": lambda layout: layout.origins,
    "relay": lambda layout: layout.relays,
    "destination": lambda layout: layout.destinations,
}


def _process(stage: Stage, what: str, here: BrokerId) -> Child:
    return stage.grid.brokers[here] if what == "broker" else stage.grid.agents[here]


def _down(
    stage: Stage, kind: str, what: str, here: BrokerId, hold_s: float, inflict: Act, how: str
) -> Injury:
    heal = partial(stage.start_broker if what == "broker" else stage.start_agent, here)
    felt = soon(lambda: not _process(stage, what, here).running)
    detail = f"{how}, back after {hold_s:g} s"
    return Injury(kind, frozenset({f"{what} {here}"}), detail, hold_s, inflict, heal, felt)


def _kill_kind(what: str, role: str) -> Kind:
    def draw(stage: Stage, rng: random.Random) -> Injury:
        here = rng.choice(ROLES[role](stage.layout))
        is_broker = what == "broker"
        hold_s = stage.span_s(rng, BROKER_AWAY_S if is_broker else AGENT_AWAY_S)
        kill = soon(partial(stage.kill_broker if is_broker else stage.kill_agent, here))
        return _down(stage, f"{what}-kill-{role}", what, here, hold_s, kill, "kill -9")

    def lacks(stage: Stage) -> str:
        nobody = "" if ROLES[role](stage.layout) else f"no broker is a {role} here"
        return nobody or _lacks_agents(stage, what)

    return Kind(f"{what}-kill-{role}", f"kill -9 of a {role}'s {what}", draw, lacks)


def _restart_kind(name: str, *, persistent: bool) -> Kind:
    def restartable(stage: Stage) -> list[BrokerId]:
        return [i for i in stage.grid.grid.ids if (i in stage.persistent) == persistent]

    def draw(stage: Stage, rng: random.Random) -> Injury:
        here = rng.choice(restartable(stage))
        hold_s, stop = stage.span_s(rng, (RESTART_S,)), partial(stage.stop_broker, here)
        return _down(stage, name, "broker", here, hold_s, stop, "SIGTERM")

    what = f"a broker restarted in order, {'with' if persistent else 'without'} persistence"
    return Kind(name, what, draw, lambda stage: "" if restartable(stage) else "no such broker")


def _pause_kind(what: str, article: str) -> Kind:
    def draw(stage: Stage, rng: random.Random) -> Injury:
        here, hold_s = rng.choice(stage.grid.grid.ids), stage.span_s(rng, HURT_S)

        def pause() -> None:
            if what == "broker":
                stage.ledger.interrupted(here, stage.now_s())
            _process(stage, what, here).pause()

        def resume() -> None:
            if what == "broker":
                stage.ledger.goes_on(here, stage.now_s())
            _process(stage, what, here).resume()

        victims, detail = frozenset({f"{what} {here}"}), f"SIGSTOP, {hold_s:g} s"
        felt = soon(lambda: _is_stopped(_process(stage, what, here).pid))
        return Injury(f"{what}-pause", victims, detail, hold_s, soon(pause), soon(resume), felt)

    lacks = partial(_lacks_agents, what=what)
    return Kind(f"{what}-pause", f"SIGSTOP of {article} {what}", draw, lacks)


def _lacks_agents(stage: Stage, what: str) -> str:
    return "no agents" if what == "agent" and not stage.grid.agents else ""


def _is_stopped(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return stat.rpartition(")")[2].split()[0] == "T"


WAITS_S: Final = (1.0, 3.0)
"""What comes meanwhile must fit in the brokers' queues."""


def _draw_subscriber_pause(stage: Stage, rng: random.Random) -> Injury:
    here, hold_s = rng.choice(stage.layout.destinations), stage.span_s(rng, WAITS_S)
    names = [each.name for each in stage.layout.subscribers if each.broker == here]

    def pause() -> None:
        for name in names:
            stage.traffic.subscribers[name].pause()

    def resume() -> None:
        for name in names:
            stage.traffic.subscribers[name].resume()

    felt = soon(lambda: all(stage.traffic.subscribers[name].paused for name in names))
    kind, victims = "subscriber-pause", frozenset({f"broker {here}"})
    return Injury(kind, victims, f"{hold_s:g} s", hold_s, soon(pause), soon(resume), felt)


def _draw_publisher_burst(stage: Stage, rng: random.Random) -> Injury:
    here, hold_s = rng.choice(stage.layout.origins), stage.span_s(rng, WAITS_S)
    topics = [topic for topic, origin in stage.layout.topics.items() if origin == here]

    async def hold() -> None:
        stage.traffic.hold(topics)

    async def hand_over() -> None:
        await stage.traffic.hand_over()

    victims, felt = frozenset({"publishers"}), soon(lambda: stage.traffic.saved > 0)
    detail = f"what is due at broker {here} in {hold_s:g} s"
    return Injury("publisher-burst", victims, detail, hold_s, hold, hand_over, felt)


def _draw_disk_full(stage: Stage, rng: random.Random) -> Injury:
    here, hold_s = rng.choice(sorted(stage.disks)), stage.span_s(rng, HURT_S)
    disk = stage.disks[here]
    acts = soon(disk.fill), soon(disk.empty), soon(disk.is_full)
    detail = f"no free block, {hold_s:g} s"
    return Injury("disk-full", frozenset({f"agent {here}"}), detail, hold_s, *acts)


_HALF_OPEN: Final = "a link's connections swallow all bytes, one way or both, until given up"

FAULTS: Final = (
    _of_links("link-cut", "a link's connections reset, new ones refused", _draw_cut),
    _of_links("partition", "every link between two halves cut", _draw_partition),
    _of_links("link-reset", f"a link's connections reset {RESETS} times", _draw_reset),
    _of_links("link-silence", "a link carries nothing, one way or both", _draw_silence),
    _of_links("half-open", _HALF_OPEN, _draw_half_open),
    _of_links("link-delay", "a link takes 100 to 300 ms more", _draw_delay),
    *(_kill_kind(what, role) for what in ("broker", "agent") for role in ROLES),
    _restart_kind("broker-restart", persistent=False),
    _restart_kind("broker-restart-saved", persistent=True),
    _pause_kind("agent", "an"),
    _pause_kind("broker", "a"),
    Kind("publisher-burst", "a publisher saves up, and gives it at once", _draw_publisher_burst),
    Kind("subscriber-pause", "a broker's subscribers read nothing", _draw_subscriber_pause),
    Kind(
        "disk-full",
        "no room for an agent's state (takes root)",
        _draw_disk_full,
        lambda stage: "" if stage.disks else "mounting a small file system takes root",
    ),
)


QUIET_S: Final = 3.0


def _draw_none(stage: Stage, rng: random.Random) -> Injury:
    hold_s = stage.span_s(rng, (QUIET_S,))
    nothing, felt = soon(lambda: None), soon(lambda: True)
    return Injury("none", frozenset(), "a quiet time", hold_s, nothing, nothing, felt)


KINDS: Final = {
    kind.name: kind for kind in (Kind("none", "no fault", _draw_none), *FAULTS, *STRANGERS)
}
"""Every class by name, in the order they are listed."""

MIXED: Final = "mixed"
"""Several classes at once; drawn when not told otherwise."""


MIXTURE: Final = (2, 3)
"""Injuries at once."""

SPREAD_S: Final = 3.0
"""Between the first and the last beginning in a mixture, at most."""

MIXTURES_SHARE: Final = 4
"""One mixture for so many classes, at least one a round."""

DRAWS_MAX: Final = 20
"""Attempts to find victims that are not taken yet."""


@dataclass(frozen=True, slots=True)
class Episode:
    """Injuries that are inflicted, healed, and recovered from before the next episode."""

    phase: str  # the class it is counted under
    injuries: tuple[tuple[float, Injury], ...]  # each with the seconds to wait before it
    round: int  # in which it comes, from 0

    def __str__(self) -> str:
        return "; ".join(str(injury) for _, injury in self.injuries)


def episodes(classes: Sequence[str], stage: Stage, rng: random.Random) -> Iterator[Episode]:
    single = [name for name in classes if name != MIXED]
    mixtures = max(1, len(single) // MIXTURES_SHARE) if MIXED in classes else 0
    pool = [name for name in single if name != "none"] or [
        name for name, kind in KINDS.items() if name != "none" and not kind.lacks(stage)
    ]
    for turn in itertools.count():
        names = [*single, *[MIXED] * mixtures]
        rng.shuffle(names)
        for name in names:
            if name == MIXED:
                yield Episode(MIXED, _mixture(pool, stage, rng), turn)
            else:
                yield Episode(name, ((0.0, KINDS[name].draw(stage, rng)),), turn)


def _mixture(
    pool: Sequence[str], stage: Stage, rng: random.Random
) -> tuple[tuple[float, Injury], ...]:
    chosen: list[tuple[float, Injury]] = []
    taken: set[str] = set()
    wanted = rng.choice(MIXTURE)
    for _ in range(DRAWS_MAX):
        if len(chosen) == wanted:
            break
        injury = KINDS[rng.choice(pool)].draw(stage, rng)
        if not injury.victims & taken:
            taken |= injury.victims
            chosen.append((round(rng.uniform(0, SPREAD_S), 1) if chosen else 0.0, injury))
    return tuple(chosen)

"""From a story of minutes to a log of any length: quiet seconds again and again, blows once.

The log is cut into chunks within which nothing changes: one routing, one set of living brokers,
one set of passages. A chunk is drawn by itself, from its number and the seed, so that many
processes write one log, and always the same.

A passage says where a stream's frames go. A broker passes a frame on when it first has it, so a
copy's time of arrival is the least sum of delays over the arcs that were used; a copy over any
other arc is a duplicate.
"""

import heapq
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from federator.protocol.parameters import Strategy
from lab.event_log.layout import Layout
from lab.event_log.story import QUIET_S, Act, Story

Arc = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reached:
    """A broker that a stream's frames come to."""

    broker: int
    hops: int  # links travelled
    sender: int  # over whom the first copy comes; -1 at the origin
    delay_us: int


@dataclass(frozen=True, slots=True)
class Passage:
    """The ways that one stream's frames go."""

    reached: tuple[Reached, ...]  # by order of arrival, the origin first
    arcs: frozenset[Arc]
    duplicates: frozenset[Arc]  # arcs whose copies are suppressed at their end


def trace(origin: int, arcs: Collection[Arc], delay_us: Mapping[Arc, int]) -> Passage:
    """The first copies among those over ``arcs``."""
    onward: dict[int, list[int]] = {}
    for sender, receiver in sorted(arcs):
        onward.setdefault(sender, []).append(receiver)
    reached: dict[int, Reached] = {}
    queue = [(0, 0, origin, -1)]
    while queue:
        so_far_us, hops, broker, sender = heapq.heappop(queue)
        if broker in reached:
            continue
        reached[broker] = Reached(broker, hops, sender, so_far_us)
        for receiver in onward.get(broker, ()):
            if receiver not in reached:
                delay = so_far_us + delay_us[broker, receiver]
                heapq.heappush(queue, (delay, hops + 1, receiver, broker))
    used = frozenset(arc for arc in arcs if arc[0] in reached)
    first = {(one.sender, one.broker) for one in reached.values()}
    return Passage(tuple(reached.values()), used, used - first)


CHUNK_S_MAX = 120
FIRST_EPOCH = 1_000

START_US = 1_767_225_600_000_000
"""Midnight of 2026-01-01, UTC: when every log begins."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What holds throughout a chunk."""

    act: Act
    passages: tuple[Passage, ...]  # one for each stream
    broken: frozenset[tuple[int, int]]  # (stream, broker) that what still carries does not reach


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of seconds of the log within which nothing changes."""

    number: int
    first_s: int  # of the log
    seconds: tuple[int, ...]  # for each second of the log, which of the story it is
    fresh: bool  # whether the story's changes happen here, or only its quiet is repeated
    phase: Phase
    batches: tuple[int, ...]  # for each broker, its first batch here
    spools: tuple[str, ...]  # for each broker


def phases_of(layout: Layout, story: Story) -> list[tuple[int, int, Phase]]:
    """(from, until, phase) in seconds of the story, before and after each act has settled."""
    delay_us = dict(zip(layout.arcs, layout.arc_us, strict=True))
    phases: list[tuple[int, int, Phase]] = []
    before: tuple[Passage, ...] = ()
    strategy: Strategy | None = None
    for act in story.acts:
        after = _passages(layout, act.carried, delay_us)
        if strategy is not act.strategy:
            before = tuple(trace(stream.origin, (), delay_us) for stream in layout.streams)
        if act.settled > act.start:
            phases.append((act.start, act.settled, _unsettled(layout, act, before, delay_us)))
        phases.append((act.settled, act.end, Phase(act, after, frozenset())))
        before, strategy = after, act.strategy
    return phases


def _passages(
    layout: Layout, carried: tuple[frozenset[Arc], ...], delay_us: dict[Arc, int]
) -> tuple[Passage, ...]:
    pairs = zip(layout.streams, carried, strict=True)
    return tuple(trace(stream.origin, arcs, delay_us) for stream, arcs in pairs)


def _unsettled(
    layout: Layout, act: Act, before: tuple[Passage, ...], delay_us: dict[Arc, int]
) -> Phase:
    """The routes of before, as far as they still lead anywhere."""
    now = _passages(layout, tuple(passage.arcs & act.up for passage in before), delay_us)
    broken = frozenset(
        (number, one.broker)
        for number, (old, new) in enumerate(zip(before, now, strict=True))
        for one in old.reached
        if one.broker not in {still.broker for still in new.reached}
    )
    return Phase(act, now, broken)


def chunks_of(layout: Layout, story: Story, *, quiet_s: int, seed: int) -> list[Chunk]:
    """The whole log: the story, and ``quiet_s`` more seconds of its quiet, evenly among acts."""
    rng = random.Random(f"spools {seed}")
    chunks: list[Chunk] = []
    disks = {at: f"{rng.getrandbits(64):016x}" for at in range(len(layout.ids))}
    batches = dict.fromkeys(disks, 1)
    lost_disk = False
    now_s = 0
    for start, end, phase, fresh in _scenes(layout, story, quiet_s):
        if not lost_disk and 0 in phase.act.alive and phase.act.lives[0] > 1:
            disks[0], batches[0], lost_disk = f"{rng.getrandbits(64):016x}", 1, True
        quiet = (end - QUIET_S + at % QUIET_S for at in range(start))
        seconds = list(range(start, end) if fresh else quiet)
        for first in range(0, len(seconds), CHUNK_S_MAX):
            part = tuple(seconds[first : first + CHUNK_S_MAX])
            chunks.append(
                Chunk(
                    number=len(chunks),
                    first_s=now_s,
                    seconds=part,
                    fresh=fresh,
                    phase=phase,
                    batches=tuple(batches.values()),
                    spools=tuple(disks.values()),
                )
            )
            now_s += len(part)
            for at in phase.act.alive:
                batches[at] += len(part)
    return chunks


def _scenes(layout: Layout, story: Story, quiet_s: int) -> list[tuple[int, int, Phase, bool]]:
    """(from, until, phase, True) of the story; (how long, until, phase, False) of its quiet."""
    ends = {act.end for act in story.acts}
    scenes = []
    done = repeats = 0
    for start, end, phase in phases_of(layout, story):
        scenes.append((start, end, phase, True))
        if end in ends:
            done += 1
            more = quiet_s * done // len(ends) - repeats
            repeats += more
            if more:
                scenes.append((more, end, phase, False))
    return scenes

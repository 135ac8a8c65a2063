"""What goes wrong, when and where: a schedule drawn from the seed and applied to a world.

A schedule is a list, so a failing run can be tried again with fewer faults. Every fault ends by
itself, except a death that is meant to be for good.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from federator.protocol.types import BrokerId
from lab.sim.plan import Link
from lab.sim.world import World


class FaultKind(Enum):
    """Each class fires in some seeds; which did is counted under these names."""

    LINK_RESET = "link_reset"
    CUT = "cut"
    CUT_ONE_WAY = "cut_one_way"
    SILENT = "silent"
    SILENT_ONE_WAY = "silent_one_way"
    CLOG = "clogged"
    BROKER_CRASH = "broker_crash"
    AGENT_CRASH = "agent_crash"
    AGENT_LEAVE = "agent_leave"
    AGENT_PAUSE = "agent_pause"
    STATE_LOST = "state_lost"
    HOST_CRASH = "host_crash"
    SPLIT = "split"
    DEATH = "death"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong, from ``at_ms`` to ``until_ms``."""

    kind: FaultKind
    at_ms: int
    until_ms: int
    node: BrokerId | None = None  # where, for faults of brokers and agents
    links: tuple[Link, ...] = ()  # where, for faults of links: one, or all links between two halves


_OF_LINKS = {
    FaultKind.LINK_RESET: 4,
    FaultKind.CUT: 4,
    FaultKind.CUT_ONE_WAY: 3,
    FaultKind.SILENT: 2,
    FaultKind.SILENT_ONE_WAY: 2,
    FaultKind.CLOG: 3,
}
_WEIGHTS = _OF_LINKS | {
    FaultKind.BROKER_CRASH: 4,
    FaultKind.AGENT_CRASH: 4,
    FaultKind.AGENT_LEAVE: 2,
    FaultKind.AGENT_PAUSE: 3,
    FaultKind.STATE_LOST: 1,
    FaultKind.HOST_CRASH: 2,
    FaultKind.SPLIT: 1,
    FaultKind.DEATH: 1,
}
CLOG_MS_MAX = 5_000
BRIEF_MS = (50, 3_000)
LONG_MS = (3_000, 40_000)


def draw_faults(
    rng: random.Random,
    *,
    ids: Sequence[BrokerId],
    links: Sequence[Link],
    count: int,
    start_ms: int,
    end_ms: int,
) -> tuple[Fault, ...]:
    """``count`` faults between ``start_ms`` and ``end_ms``; at most a minority dies for good."""
    kinds, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    faults: list[Fault] = []
    deaths_left = (len(ids) - 1) // 2
    brief_share = 0.7 if end_ms - start_ms < LONG_MS[1] // 2 else 0.3
    for _ in range(count):
        kind = rng.choices(kinds, weights)[0]
        at_ms = rng.randint(start_ms, end_ms - 1)
        lasts_ms = rng.randint(*(BRIEF_MS if rng.random() < brief_share else LONG_MS))
        until_ms = min(end_ms, at_ms + lasts_ms)
        if kind in _OF_LINKS:
            if not links:
                continue
            a, b = rng.choice(links)
            if rng.random() < 0.5:
                a, b = b, a
            if kind is FaultKind.CLOG:
                until_ms = min(until_ms, at_ms + CLOG_MS_MAX)
            faults.append(Fault(kind, at_ms, until_ms, links=((a, b),)))
        elif kind is FaultKind.SPLIT:
            faults.append(Fault(kind, at_ms, until_ms, links=draw_split(rng, ids, links)))
        elif kind is not FaultKind.DEATH or deaths_left:
            deaths_left -= kind is FaultKind.DEATH
            faults.append(Fault(kind, at_ms, until_ms, node=rng.choice(list(ids))))
    return tuple(sorted(faults, key=lambda fault: fault.at_ms))


def draw_split(
    rng: random.Random, ids: Sequence[BrokerId], links: Sequence[Link]
) -> tuple[Link, ...]:
    """The links between two halves of all brokers."""
    half = set(rng.sample(ids, len(ids) // 2))
    return tuple(link for link in links if (link[0] in half) != (link[1] in half))


def schedule(world: World, faults: Sequence[Fault]) -> None:
    """Put ``faults`` on the world's agenda."""
    for fault in faults:
        world.agenda.at(fault.at_ms, _begin, world, fault)


def _begin(world: World, fault: Fault) -> None:
    world.fired[f"fault {fault.kind.value}"] += 1
    if fault.node is not None:
        _begin_at_node(world, fault, fault.node)
    else:
        for a, b in fault.links:
            _begin_at_link(world, fault, a, b)


def _begin_at_link(world: World, fault: Fault, a: BrokerId, b: BrokerId) -> None:
    one_way = fault.kind in (FaultKind.CUT_ONE_WAY, FaultKind.SILENT_ONE_WAY)
    for path in world.paths_of(a, b, both=not one_way):
        match fault.kind:
            case FaultKind.LINK_RESET:
                world.wires.reset_path(path)
            case FaultKind.CUT | FaultKind.CUT_ONE_WAY | FaultKind.SPLIT:
                world.wires.cut(path)
                world.agenda.at(fault.until_ms, world.wires.mend, path)
            case FaultKind.SILENT | FaultKind.SILENT_ONE_WAY:
                world.wires.silence(path)
                world.agenda.at(fault.until_ms, world.wires.unsilence, path)
            case FaultKind.CLOG:
                path.clogged_until_ms = max(path.clogged_until_ms, fault.until_ms)
            case _:
                raise AssertionError(f"{fault.kind} is not a fault of a link")


def _begin_at_node(world: World, fault: Fault, id: BrokerId) -> None:
    agenda, until_ms = world.agenda, fault.until_ms
    match fault.kind:
        case FaultKind.BROKER_CRASH:
            world.stop_broker(id)
            agenda.at(until_ms, world.start_broker, id)
        case FaultKind.AGENT_CRASH:
            world.stop_agent(id)
            agenda.at(until_ms, world.start_agent, id)
        case FaultKind.AGENT_LEAVE:
            world.stop_agent(id, graceful=True)
            agenda.at(until_ms, world.start_agent, id)
        case FaultKind.STATE_LOST:
            world.stop_agent(id)
            agenda.at(until_ms, world.forget, id)
            agenda.at(until_ms, world.start_agent, id)
        case FaultKind.AGENT_PAUSE:
            agent = world.agents.get(id)
            if agent is not None:
                world.pause_agent(id)
                agenda.at(until_ms, world.resume_agent, id, agent.life)
        case FaultKind.HOST_CRASH:
            world.stop_broker(id)
            world.stop_agent(id)
            agenda.at(until_ms, world.start_broker, id)
            agenda.at(until_ms, world.start_agent, id)
        case FaultKind.DEATH:
            world.stop_broker(id)
            world.stop_agent(id)
        case _:
            raise AssertionError(f"{fault.kind} is not a fault of a node")

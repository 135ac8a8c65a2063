"""What goes wrong, when and where: drawn from the seed, and applied to a world.

Every fault ends by itself, except a death that is meant to be for good.
"""

import random
from collections.abc import Sequence

from federator.protocol.types import BrokerId
from lab.sim.plan import Link
from lab.sim.story import Fault, FaultKind
from lab.sim.world import World

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
_EDGE_WEIGHTS = {
    FaultKind.CLIENT_AWAY: 3,
    FaultKind.SLOW_CONSUMER: 2,
    FaultKind.BROKER_RESTART: 2,
    FaultKind.CLOCK_JUMP: 1,
    FaultKind.DISK_FULL: 2,
    FaultKind.SUBSCRIPTION_STORM: 1,
    FaultKind.CRASH_BETWEEN_WRITES: 3,
}
_OF_CLIENTS = {FaultKind.CLIENT_AWAY, FaultKind.SLOW_CONSUMER, FaultKind.SUBSCRIPTION_STORM}
WITH_REAL_CLIENTS = frozenset(_EDGE_WEIGHTS)

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
    return in_time(faults)


def draw_edge_faults(
    rng: random.Random,
    *,
    ids: Sequence[BrokerId],
    clients: Sequence[str],
    count: int,
    start_ms: int,
    end_ms: int,
) -> tuple[Fault, ...]:
    """``count`` faults of clients, clocks, disks and brokers that restart in good order."""
    faults = []
    for _ in range(count):
        kind = rng.choices(list(_EDGE_WEIGHTS), list(_EDGE_WEIGHTS.values()))[0]
        at_ms = rng.randint(start_ms, end_ms - 1)
        until_ms = min(end_ms, at_ms + rng.randint(50, (end_ms - start_ms)))
        if kind not in _OF_CLIENTS:
            steps = rng.randint(1, 6) if kind is FaultKind.CRASH_BETWEEN_WRITES else 0
            node = rng.choice(list(ids))
            faults.append(Fault(kind, at_ms, until_ms, node=node, steps=steps))
        elif clients:
            faults.append(Fault(kind, at_ms, until_ms, client=rng.choice(list(clients))))
    return in_time(faults)


def in_time(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.at_ms))


def draw_split(
    rng: random.Random, ids: Sequence[BrokerId], links: Sequence[Link]
) -> tuple[Link, ...]:
    half = set(rng.sample(ids, len(ids) // 2))
    return tuple(link for link in links if (link[0] in half) != (link[1] in half))


def schedule(world: World, faults: Sequence[Fault]) -> None:
    for fault in faults:
        world.agenda.at(fault.at_ms, _begin, world, fault)


def _begin(world: World, fault: Fault) -> None:
    world.fired[f"fault {fault.kind}"] += 1
    if fault.kind in WITH_REAL_CLIENTS:
        for part in world.parts:
            part.befall(fault)
    elif fault.node is not None:
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

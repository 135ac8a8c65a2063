"""What goes wrong at the edges: clients, clocks, disks, brokers that restart in good order.

Faults of links, agents and brokers are those of ``lab.sim.faults``; these need a world with
clients.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from federator.protocol.types import BrokerId
from lab.sim.messages.brokers import LOCAL_MS
from lab.sim.messages.real_clients import RealClients

SLOW_ACKNOWLEDGEMENT_MS = 400
CLOCK_JUMP_MS = 3_600_000
STORM_FILTERS = 40  # subscriptions made one after the other; more than a small queue holds


class MishapKind(Enum):
    """Each class fires in some seeds; which did is counted under these names."""

    CLIENT_AWAY = "client_away"
    SLOW_CONSUMER = "slow_consumer"
    BROKER_RESTART = "broker_restart"
    CLOCK_JUMP = "clock_jump"
    DISK_FULL = "disk_full"
    SUBSCRIPTION_STORM = "subscription_storm"
    CRASH_BETWEEN_WRITES = "crash_between_writes"


@dataclass(frozen=True, slots=True)
class Mishap:
    """One thing that goes wrong, from ``at_ms`` to ``until_ms``."""

    kind: MishapKind
    at_ms: int
    until_ms: int
    node: BrokerId | None = None  # where, for mishaps of brokers and hosts
    client: str | None = None  # who, for mishaps of clients
    steps: int = 0  # writes after which the agent is killed


_WEIGHTS = {
    MishapKind.CLIENT_AWAY: 3,
    MishapKind.SLOW_CONSUMER: 2,
    MishapKind.BROKER_RESTART: 2,
    MishapKind.CLOCK_JUMP: 1,
    MishapKind.DISK_FULL: 2,
    MishapKind.SUBSCRIPTION_STORM: 1,
    MishapKind.CRASH_BETWEEN_WRITES: 3,
}
_OF_CLIENTS = {MishapKind.CLIENT_AWAY, MishapKind.SLOW_CONSUMER, MishapKind.SUBSCRIPTION_STORM}


def draw_mishaps(
    rng: random.Random,
    *,
    ids: Sequence[BrokerId],
    clients: Sequence[str],
    count: int,
    start_ms: int,
    end_ms: int,
) -> tuple[Mishap, ...]:
    """``count`` mishaps between ``start_ms`` and ``end_ms``."""
    mishaps = []
    for _ in range(count):
        kind = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        at_ms = rng.randint(start_ms, end_ms - 1)
        until_ms = min(end_ms, at_ms + rng.randint(50, (end_ms - start_ms)))
        if kind not in _OF_CLIENTS:
            steps = rng.randint(1, 6) if kind is MishapKind.CRASH_BETWEEN_WRITES else 0
            node = rng.choice(list(ids))
            mishaps.append(Mishap(kind, at_ms, until_ms, node=node, steps=steps))
        elif clients:
            mishaps.append(Mishap(kind, at_ms, until_ms, client=rng.choice(list(clients))))
    return tuple(sorted(mishaps, key=lambda mishap: mishap.at_ms))


def schedule_mishaps(clients: RealClients, mishaps: Sequence[Mishap]) -> None:
    """Put ``mishaps`` on the world's agenda."""
    for mishap in mishaps:
        clients.agenda.at(mishap.at_ms, _begin, clients, mishap)


def _begin(clients: RealClients, mishap: Mishap) -> None:
    clients.fired[f"mishap {mishap.kind.value}"] += 1
    if mishap.client is not None:
        _begin_at_client(clients, mishap, mishap.client)
    else:
        assert mishap.node is not None, "a mishap happens to a client or a node"
        _begin_at_node(clients, mishap, mishap.node)


def _begin_at_client(clients: RealClients, mishap: Mishap, client: str) -> None:
    subscriber = clients.subscribers[client]
    agenda, until_ms = clients.agenda, mishap.until_ms
    if mishap.kind is MishapKind.CLIENT_AWAY:
        subscriber.leave()
        agenda.at(until_ms, subscriber.come_back)
    elif mishap.kind is MishapKind.SLOW_CONSUMER:
        subscriber.acknowledges_after_ms = SLOW_ACKNOWLEDGEMENT_MS
        agenda.at(until_ms, setattr, subscriber, "acknowledges_after_ms", LOCAL_MS)
    else:
        storm = {f"storm/{at}": 1 for at in range(STORM_FILTERS)}
        subscriber.change_filters(subscriber.filters | storm)


def _begin_at_node(clients: RealClients, mishap: Mishap, id: BrokerId) -> None:
    world, until_ms = clients.world, mishap.until_ms
    agenda = world.agenda
    match mishap.kind:
        case MishapKind.BROKER_RESTART:
            world.stop_broker(id, orderly=True)
            agenda.at(until_ms, world.start_broker, id)
        case MishapKind.CLOCK_JUMP:
            clients.set_clock(id, CLOCK_JUMP_MS if until_ms % 2 else -CLOCK_JUMP_MS)
        case MishapKind.DISK_FULL:
            clients.fill_disk(id)
            agenda.at(until_ms, clients.fill_disk, id, -1)
        case MishapKind.CRASH_BETWEEN_WRITES:
            if id in world.agents:
                agent = world.agents[id]
                agent.crash_after = mishap.steps
                agenda.at(until_ms, setattr, agent, "crash_after", None)
        case _:
            raise AssertionError(f"{mishap.kind} is not a mishap of a node")

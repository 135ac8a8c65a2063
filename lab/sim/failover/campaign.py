"""Tells a story of failover: faults and drains first, then healing, then everyone must agree.

The checks of ``lab.sim.invariants`` hold after every event, too: the session flow table travels in
the announcements that they watch.

Source: docs/simulator.md; docs/protocol.md section 15.
"""

from collections.abc import Iterator

from federator.protocol.types import BrokerId
from lab.sim.campaign import SeedResult, told
from lab.sim.convergence import demand
from lab.sim.failover.clients import Client, Clients
from lab.sim.failover.demands import FailoverInvariants, bound_ms, complaints, terms_reused
from lab.sim.failover.story import FailoverStory
from lab.sim.failover.world import FailoverWorld
from lab.sim.faults import Fault, schedule

CHECK_EVERY_MS = 500
AFTERWARDS_MS = 10_000
"""Once all agree, nothing may change any more: watched for so long."""


def run_failover(story: FailoverStory) -> SeedResult:
    """Run one seed to its end or to the first violation."""
    invariants = FailoverInvariants()
    world = FailoverWorld(story.plan, seed=story.seed, watcher=invariants)
    invariants.attach(world)
    limit_ms = bound_ms(story.plan)

    def acts() -> Iterator[int]:
        clients = Clients(world, [Client(*drawn) for drawn in story.clients])
        clients.run(story.heal_ms + limit_ms + AFTERWARDS_MS)
        _play(world, invariants, story)
        yield _agree_for_good(world, clients, story.heal_ms, limit_ms)
        demand("terms_grow", terms_reused(world, invariants))

    nothing = SeedResult(story.seed, story.topology, len(story.plan.ids), None, limit_ms)
    return told(nothing, world, acts())


def _play(world: FailoverWorld, invariants: FailoverInvariants, story: FailoverStory) -> None:
    """The faulty phase."""
    schedule(world, story.faults)
    for fault in story.faults:
        for at_ms in (fault.at_ms, fault.until_ms):
            world.agenda.at(at_ms, _note, invariants, fault)
    for order in story.drains:
        world.agenda.at(order.at_ms, world.order_drain, order.at, order.broker, order.drain)
        world.agenda.at(order.at_ms, invariants.disturb, order.broker)
    world.run_until(story.heal_ms)


def _note(invariants: FailoverInvariants, fault: Fault) -> None:
    if fault.node is None:
        invariants.join()
    else:
        invariants.disturb(fault.node)
    # When a fault ends, what it stopped starts in this same instant, but later.
    invariants.world.agenda.at(invariants.world.now_ms, invariants.look_at_parts)


def _agree(world: FailoverWorld, heal_ms: int, limit_ms: int) -> int:
    """Run until everybody agrees; how long it took."""
    while True:
        if next(complaints(world), None) is None:
            return world.now_ms - heal_ms
        if world.now_ms >= heal_ms + limit_ms:
            demand("agrees", complaints(world))
        world.run_until(world.now_ms + CHECK_EVERY_MS)


def _agree_for_good(world: FailoverWorld, clients: Clients, heal_ms: int, limit_ms: int) -> int:
    """Run until everybody agrees, and nothing changes any more; how long agreeing took.

    What looks agreed may still change within the bound, when the last echo of a fault arrives.
    """
    while True:
        agreed_ms = _agree(world, heal_ms, limit_ms)
        before = _situation(world, clients)
        world.run_until(world.now_ms + AFTERWARDS_MS)
        if before == _situation(world, clients) and next(complaints(world), None) is None:
            demand("clients_are_served", _unserved(world, clients))
            return agreed_ms
        if world.now_ms >= heal_ms + limit_ms + AFTERWARDS_MS:
            demand("stays_agreed", complaints(world))
            after = _situation(world, clients)
            demand("stands_still", [f"{before} became {after}"] if before != after else [])


def _situation(world: FailoverWorld, clients: Clients) -> tuple[dict[BrokerId, int], list[int]]:
    """Everyone's term, and how often each client was moved."""
    terms = {id: int(agent.node.failover.guide().epoch) for id, agent in world.agents.items()}
    return terms, [len(client.moved_for) for client in clients.all]


def _unserved(world: FailoverWorld, clients: Clients) -> list[str]:
    """Clients on brokers that are dead, although somebody else lives."""
    alive: set[BrokerId] = {id for id in world.agents if world.brokers[id].running}
    return [
        f"{client.name} is at {client.at}, alive are {sorted(alive)}"
        for client in clients.all
        if alive and not world.brokers[client.at].running
    ]

"""Tells one story with clients: calm, then faults, then healing, then the reckoning.

The federation must stand before anything goes wrong: from then on its promises count. After
healing it has a bound to stand again, and to pay what it owes; then everybody publishes once more
in the calm, and everything must arrive.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial

from federator.protocol.custody.origin import STEPS_MS
from federator.protocol.filters import contains
from federator.protocol.types import BrokerId
from lab.sim import convergence
from lab.sim.faults import schedule
from lab.sim.invariants import Invariants
from lab.sim.messages.clients import Subscriber
from lab.sim.messages.hubs import has_areas
from lab.sim.messages.operators import schedule_reloads
from lab.sim.messages.real_clients import RealClients
from lab.sim.routes.draw import TOPICS
from lab.sim.steering import schedule_plans
from lab.sim.story import Story
from lab.sim.tale import Tale, Wrong, demand, stand
from lab.sim.world import World

SYS_INTERVALS = 3
"""Counts that may be needed until a table is trusted again: the first may be older than a gap."""

PROBES_PER_BROKER = 3
DRAIN_MS = 5_000
SIDES, SIDES_WITH_AREAS = 3, 7
"""From leaf to leaf so many federations have to heal, one after the other."""

EVENTS_OF_CLIENTS_MS = 3_000
"""Clients are back so long after the last fault: their longest pause, and a little."""


def tale_of(story: Story) -> Tale:
    world = World(story.plan, seed=story.seed, parts=(Invariants, RealClients))
    reloads = partial(schedule_reloads, world, story.reloads)
    return tale_with(world.part(RealClients), story, stood=reloads)


def tale_with(clients: RealClients, story: Story, *, stood: Callable[[], None]) -> Tale:
    """``story`` around ``clients``; ``stood`` is called once the federation stood."""
    counts_ms = SYS_INTERVALS * max(plan.sys_interval_ms for plan in story.plan.brokers.values())
    bound_ms = convergence.bound_ms(story.plan) + EVENTS_OF_CLIENTS_MS + counts_ms
    if story.plan.ports:
        bound_ms *= SIDES_WITH_AREAS if has_areas(story.plan.ports) else SIDES
    bound_ms += story.plan.return_after_ms

    def acts() -> Iterator[int]:
        _settle(clients, story)
        stood()
        _play(clients, story)
        yield _heal(clients, story.heal_ms, bound_ms)
        _publish_in_the_calm(clients, story)

    return Tale(clients.world, bound_ms, acts())


def _settle(clients: RealClients, story: Story) -> None:
    """Nothing goes wrong yet; the federation must stand in the end."""
    world = clients.world
    loss, world.wires.loss = world.wires.loss, 0.0
    duplication, world.wires.duplication = world.wires.duplication, 0.0
    world.run_until(story.settle_ms)
    demand("settles", _complaints(clients))
    _promise(clients)
    world.wires.loss, world.wires.duplication = loss, duplication


def _play(clients: RealClients, story: Story) -> None:
    world = clients.world
    schedule(world, story.faults)
    schedule_plans(world, story.plans, until_ms=story.heal_ms + 1)
    for change in story.changes:
        subscriber = clients.subscribers[str(change.client)]
        world.agenda.at(change.at_ms, subscriber.change_filters, dict(change.filters))
    for item in story.publications:
        what = (item.publisher, item.node, item.topic, item.qos)
        for at_ms in range(item.at_ms, story.heal_ms, max(1, item.gap_ms))[: item.count]:
            world.agenda.at(at_ms, clients.client_publishes, *what)
    world.run_until(story.heal_ms)
    world.wires.loss = 0.0
    world.wires.duplication = 0.0
    for subscriber in clients.subscribers.values():
        subscriber.acknowledges_after_ms = 1


def _heal(clients: RealClients, heal_ms: int, bound_ms: int) -> int:
    """Run until the federation stands, and goes on standing, and owes nothing; how long it took.

    What looks whole may not have noticed yet that a connection is dead: it must look so for longer
    than that takes.
    """
    world = clients.world
    echo_ms = world.plan.parameters.hello_timeout_ms + world.plan.parameters.hello_interval_ms
    wrong: dict[str, Wrong] = {
        "converges": partial(_complaints, clients),
        "owed": partial(_outstanding, clients),
    }
    return stand(world, wrong, until_ms=heal_ms + bound_ms, calm_ms=echo_ms) - heal_ms


def _publish_in_the_calm(clients: RealClients, story: Story) -> None:
    """Once more from everywhere: now QoS 0 arrives as well."""
    world = clients.world
    drain_ms = DRAIN_MS
    if (
        clients.ledger.trust_all()
    ):  # a log was lost, and the clock with it: its next tail is believed
        drain_ms += STEPS_MS[-1]
    _promise(clients)
    clients.ledger.calm = True
    rng = random.Random(f"calm {story.seed}")
    alive = {id for part in convergence.parts_of(world) for id in part.ids}
    for id in sorted(alive - clients.hubs.ports.keys()):
        for _ in range(PROBES_PER_BROKER):
            clients.client_publishes(f"p1-{id}", id, rng.choice(TOPICS), rng.choice((0, 1)))
    world.run_until(world.now_ms + drain_ms)
    demand("arrives_in_the_calm", _outstanding(clients))


def _promise(clients: RealClients) -> None:
    for id, subscriber in clients.subscribers.items():
        if subscriber.subscribed and not _unknown(clients, subscriber):
            clients.ledger.promise(id, subscriber.filters)


def _complaints(clients: RealClients) -> Iterator[str]:
    world, each = clients.world, clients.subscribers.values()
    # There something new may have made up for something gone while nobody listened.
    doubtful = {client.plan.broker for client in each if client.heard != client.filters}
    yield from convergence.complaints(world)
    yield from clients.hubs.complaints()
    for id, subscriber in clients.subscribers.items():
        broker = subscriber.plan.broker
        if not world.brokers[broker].running or broker not in world.agents:
            continue
        if not subscriber.subscribed:
            yield f"{id!r} is not subscribed"
        elif missing := _unknown(clients, subscriber):
            if broker in doubtful:
                world.fired["count made up for"] += 1
            else:
                yield f"{broker} does not know that {id!r} wants {missing}"


def _unknown(clients: RealClients, subscriber: Subscriber) -> list[str]:
    known = clients.world.filters[subscriber.plan.broker]
    if clients.hubs.ports:  # a hub asks for less than each client does, and for wider
        return sorted(f for f in subscriber.filters if not any(contains(k, f) for k in known))
    return [] if "#" in known else sorted(set(subscriber.filters) - known)


def _outstanding(clients: RealClients) -> list[str]:
    part_of: dict[BrokerId, int] = {}
    for at, part in enumerate(convergence.parts_of(clients.world)):
        part_of.update(dict.fromkeys(part.ids, at))
    for port in clients.hubs.ports.values():
        if (above := part_of.get(port.hub)) is not None and port.id in part_of:
            below = part_of[port.id]
            part_of = {id: above if at == below else at for id, at in part_of.items()}
    return clients.ledger.outstanding(
        lambda one, other: one in part_of and part_of[one] == part_of.get(other)
    )

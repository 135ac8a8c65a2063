"""Draws one seed's story of deaths, returns, splits and drains.

Fewer kinds of faults than in ``lab.sim.routes``, and longer ones: what they test is not whether
announcements arrive, but who decides, and for how long a decision stands. The controller's own
broker is the favourite victim, and comes back.
"""

import random
from dataclasses import replace

from federator.protocol.controller.failover import FailoverParameters
from federator.protocol.controller.presence import PresenceParameters
from federator.protocol.messages.session_records import FlowRow
from federator.protocol.types import BrokerId, Millis
from lab.sim.faults import draw_split, in_time
from lab.sim.manner import Manner
from lab.sim.plan import Link, WorldPlan
from lab.sim.routes import draw as routes
from lab.sim.story import DrainOrder, Fault, FaultKind, Kind, Story

NODES_MAX = 12
SETTLE_MS = 5_000
FAULTY_MS = (10_000, 90_000)

_KINDS = {
    FaultKind.BROKER_CRASH: 5,
    FaultKind.HOST_CRASH: 5,
    FaultKind.AGENT_CRASH: 3,
    FaultKind.AGENT_LEAVE: 1,
    FaultKind.AGENT_PAUSE: 1,
    FaultKind.STATE_LOST: 1,
    FaultKind.SPLIT: 4,
    FaultKind.CUT: 2,
    FaultKind.LINK_RESET: 1,
    FaultKind.DEATH: 2,
}
_OF_LINKS = {FaultKind.SPLIT, FaultKind.CUT, FaultKind.LINK_RESET}


def draw(seed: int, how: Manner) -> Story:
    """The story of ``seed``, with so many brokers, or few."""
    rng = random.Random(f"failover {seed}")
    nodes = how.nodes or rng.randint(2, NODES_MAX)
    base = routes.draw(seed, replace(how, nodes=nodes, faulty=False))
    plan = replace(base.plan, failover=_parameters(base.plan), filters={}, start_ms_max=2_000)
    heal_ms = SETTLE_MS + rng.randint(*FAULTY_MS)
    links = [(link.a, link.b) for link in plan.links]
    faults = _draw_faults(rng, plan, links, heal_ms) if how.faulty else ()
    return Story(
        kind=Kind.FAILOVER,
        seed=seed,
        topology=base.topology,
        plan=plan,
        faults=faults,
        drains=_draw_drains(rng, plan, heal_ms),
        followers=_draw_clients(rng, plan),
        heal_ms=heal_ms,
    )


def _parameters(plan: WorldPlan) -> FailoverParameters:
    """Default ones; a slow federation gets a longer look before anybody decides."""
    office_ms = max(1_000, 6 * plan.delay_ms_max * len(plan.ids))
    return FailoverParameters(
        presence=PresenceParameters(gone_after_ms=Millis(max(1_000, office_ms // 2))),
        office_ms=Millis(office_ms),
    )


def _draw_faults(
    rng: random.Random, plan: WorldPlan, links: list[Link], end_ms: int
) -> tuple[Fault, ...]:
    ids = sorted(plan.ids, key=lambda id: (plan.priorities.get(id, 0), id))
    faults: list[Fault] = []
    deaths_left = (len(ids) - 1) // 2
    for _ in range(rng.randint(1, 5)):
        kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
        at_ms = rng.randint(SETTLE_MS, end_ms - 1)
        until_ms = min(end_ms, at_ms + rng.choice((500, 2_000, 8_000, 20_000, 60_000)))
        if kind in _OF_LINKS:
            split = kind is FaultKind.SPLIT
            where = draw_split(rng, ids, links) if split else (rng.choice(links),)
            faults.append(Fault(kind, at_ms, until_ms, links=where))
        elif kind is not FaultKind.DEATH or deaths_left:
            deaths_left -= kind is FaultKind.DEATH
            victim = ids[0] if rng.random() < 0.4 else rng.choice(ids)
            faults.append(Fault(kind, at_ms, until_ms, node=victim))
    return in_time(faults)


def _draw_drains(rng: random.Random, plan: WorldPlan, end_ms: int) -> tuple[DrainOrder, ...]:
    orders: list[DrainOrder] = []
    for _ in range(rng.choice((0, 0, 1, 2))):
        at_ms = rng.randint(SETTLE_MS, end_ms)
        broker = rng.choice(plan.ids)
        orders.append(DrainOrder(at_ms, rng.choice(plan.ids), broker, True))
        if rng.random() < 0.6:
            later_ms = rng.randint(at_ms, end_ms)
            orders.append(DrainOrder(later_ms, rng.choice(plan.ids), broker, False))
    return tuple(sorted(orders, key=lambda order: order.at_ms))


def _draw_clients(rng: random.Random, plan: WorldPlan) -> tuple[tuple[str, BrokerId, FlowRow], ...]:
    drawn = []
    for number in range(rng.choice((1, 4, 10))):
        name, topic = f"c{number}", f"t/{rng.randint(0, 3)}"
        action = rng.choice(("pub", "sub"))
        row = FlowRow(name, "pub" if action == "pub" else "sub", topic, keeps=rng.random() < 0.5)
        drawn.append((name, rng.choice(plan.ids), row))
    return tuple(drawn)

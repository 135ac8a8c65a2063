"""Calm worlds for tests: equal delays, nothing goes wrong."""

from collections import Counter

from federator.protocol.forwarding.explanation import explain
from federator.protocol.messages.control import CoreAnn
from federator.protocol.parameters import Parameters
from federator.protocol.types import BrokerId, Cost
from lab.sim.parts import Part
from lab.sim.plan import LinkPlan, WorldPlan
from lab.sim.topologies import grid
from lab.sim.world import World

DELAY_MS = 5


class SendCounter(Part):
    """Counts control publications, and copies of each announcement."""

    def __init__(self, world):
        self.by_kind = Counter()
        self.by_announcement = Counter()

    def sent(self, agent, target, send):
        message = send.message
        self.by_kind[type(message).__name__] += 1
        if isinstance(message, CoreAnn):
            self.by_announcement[message.core, message.seq] += 1


def calm_world(
    pairs,
    filters,
    *,
    first_id=0,
    watch=None,
    delay_ms=DELAY_MS,
    delays_ms=None,
    shortest=(),
    costs=None,
    **others,
):
    """Brokers linked in ``pairs``; those in ``shortest`` route over shortest paths.

    ``delays_ms`` and ``costs`` are by pair, for pairs that differ; ``watch`` makes a part.
    """
    links = tuple(
        LinkPlan(
            BrokerId(a + first_id),
            BrokerId(b + first_id),
            cost=Cost((costs or {}).get((a, b), 1)),
            delay_ms_min=(delays_ms or {}).get((a, b), delay_ms),
            delay_ms_max=(delays_ms or {}).get((a, b), delay_ms),
        )
        for a, b in pairs
    )
    ids = tuple(sorted({id for link in links for id in (link.a, link.b)}))
    wanted = {BrokerId(id): frozenset(these) for id, these in filters.items()}
    plan = WorldPlan(
        ids, links, wanted, parameters=Parameters(**others), shortest=frozenset(shortest)
    )
    return World(plan, seed=0, parts=(watch,) if watch else ())


def calm_grid(side, filters, **options):
    return calm_world(grid(side, side), filters, **options)


def members_of(world, filter, core):
    """The brokers that belong to the mesh of ``filter``, as they see it."""
    return {
        id
        for id, agent in world.agents.items()
        if id == core or filter in agent.node.meshes.memberships.filters_of(core)
    }


def parents_in_mesh(world, filter, core):
    """Parents of every member but the core."""
    return {
        id: set(world.agents[id].node.meshes.parents_of(core))
        for id in members_of(world, filter, core) - {core}
    }


def next_hops(world, id, topic):
    """Where broker ``id`` sends what its clients publish on ``topic``."""
    return set(explain(world.agents[BrokerId(id)].data.forwarder, topic).next_hops)

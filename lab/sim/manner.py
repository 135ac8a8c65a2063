"""What the stories of one campaign have in common, of whatever seed.

Which brokers use which routing, and what links cost, is drawn beside the story, so that one seed
tells the same story under each.
"""

from dataclasses import dataclass, replace

from federator.protocol.parameters import Strategy
from lab.sim.plan import WorldPlan, costing_delay, dialled_out, under
from lab.sim.topologies import ANY

MOVES = 100


@dataclass(frozen=True, slots=True)
class Manner:
    """Each kind of story goes by what concerns it."""

    nodes: int | None = None  # ``None``: 25 in stories of routes, few in others
    topology: str = ANY
    faulty: bool = True
    strategy: str = Strategy.MESH  # one of ``STRATEGIES``
    by_delay: bool = False  # links cost their delay, which changes
    outbound: bool = False  # many links have one end that dials
    steered: bool = False  # with plans
    edges: bool = False  # which say as well what is kept at the edge
    hubs: bool = False
    areas: bool = False  # hubs of hubs
    moves: int = MOVES  # of each attack
    neighbours: int | None = None  # that brokers want which arrange their links

    def applied_to(self, plan: WorldPlan, *, seed: int, from_ms: int, until_ms: int) -> WorldPlan:
        """``plan`` in this manner; delays change between these times."""
        plan = under(self.strategy, plan, seed=seed)
        if not self.faulty:
            plan = replace(plan, loss=0.0, duplication=0.0)
        if self.by_delay:
            plan = costing_delay(plan, from_ms=from_ms, until_ms=until_ms, seed=seed)
        return dialled_out(plan, seed=seed) if self.outbound else plan

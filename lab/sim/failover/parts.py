"""Which brokers hear each other, and when that changed between two of them.

Brokers that do not hear each other decide apart, and when they do again one decision gives way. A
cut is not the only reason: an agent that is paused, or dead, parts those whom it joined. Its own
absence parts nobody from it: while it is away it decides nothing that others must give way to.

Source: docs/protocol.md section 15, "Splits".
"""

from itertools import combinations

from federator.protocol.types import BrokerId
from lab.sim.topologies import connected_parts
from lab.sim.world import World


class Parts:
    """Who heard whom when both last ran."""

    def __init__(self) -> None:
        self._apart: set[tuple[BrokerId, BrokerId]] = set()

    def look(self, world: World) -> bool:
        """Whether two brokers that run have met or parted since both last ran."""
        changed = False
        part_of = _parts_now(world)
        for a, b in combinations(sorted(part_of), 2):
            apart = part_of[a] != part_of[b]
            changed |= apart != ((a, b) in self._apart)
            (self._apart.add if apart else self._apart.discard)((a, b))
        return changed


def _parts_now(world: World) -> dict[BrokerId, int]:
    """The number of the part that each running broker is in."""
    hearing = {
        id for id, agent in world.agents.items() if world.brokers[id].running and not agent.pauses
    }
    links = [
        (link.a, link.b)
        for link in world.plan.links
        if hearing.issuperset((link.a, link.b))
        and not any(path.cuts for path in world.paths_of(link.a, link.b, both=True))
    ]
    return {id: i for i, part in enumerate(connected_parts(hearing, links)) for id in part}

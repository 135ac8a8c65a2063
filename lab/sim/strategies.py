"""Which brokers of a simulated federation use which routing.

Drawn beside the story, so that one seed tells the same story under each strategy. ``mixed`` is a
federation on its way from one to the other: each broker asks in its own manner.
"""

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from federator.protocol.parameters import Strategy
from federator.protocol.types import BrokerId
from lab.sim.plan import WorldPlan

MIXED: Final = "mixed"
NAMES: Final = (*(strategy.value for strategy in Strategy), MIXED)


def under(strategy: str, plan: WorldPlan, *, seed: int) -> WorldPlan:
    """``plan`` with its brokers under ``strategy``, one of ``NAMES``."""
    return replace(plan, shortest=_shortest(strategy, plan.ids, seed))


def _shortest(strategy: str, ids: Iterable[BrokerId], seed: int) -> frozenset[BrokerId]:
    match strategy:
        case Strategy.MESH:
            return frozenset()
        case Strategy.SHORTEST_PATH:
            return frozenset(ids)
        case _:
            rng = random.Random(f"strategies {seed}")
            return frozenset(id for id in sorted(ids) if rng.random() < 0.5)

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
    shortest: Iterable[BrokerId] = () if strategy == Strategy.MESH else plan.ids
    if strategy == MIXED:
        rng = random.Random(f"strategies {seed}")
        shortest = (id for id in sorted(plan.ids) if rng.random() < 0.5)
    return replace(plan, shortest=frozenset(shortest))

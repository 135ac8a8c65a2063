"""What there is in a world before the first event: brokers, links, and what they are called.

Which brokers use which routing is drawn beside the story, so that one seed tells the same story
under each strategy. ``mixed`` is a federation on its way from one to the other: each broker asks in
its own manner.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from federator.protocol.controller.failover import FailoverParameters
from federator.protocol.parameters import Parameters, Strategy
from federator.protocol.types import BrokerId, Cost

MIXED: Final = "mixed"
STRATEGIES: Final = (*(strategy.value for strategy in Strategy), MIXED)

Link = tuple[BrokerId, BrokerId]  # the two ends of a link, the smaller id first


def link_of(one: BrokerId, other: BrokerId) -> Link:
    """The link between two brokers."""
    return (one, other) if one < other else (other, one)


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """A link, as its operators set it up."""

    a: BrokerId
    b: BrokerId
    cost: Cost = Cost(1)
    # The ends that name the other in their configuration; the other is dialled back.
    configured: tuple[BrokerId, ...] = ()
    # ends that name the other by an address it does not advertise.
    aliases: tuple[BrokerId, ...] = ()
    ids_known: bool = True  # the configured ends also give the other's id
    delay_ms_min: int = 5
    delay_ms_max: int = 5


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """Everything that is there before the first event."""

    ids: tuple[BrokerId, ...]
    links: tuple[LinkPlan, ...]
    filters: Mapping[BrokerId, frozenset[str]] = field(default_factory=dict)
    priorities: Mapping[BrokerId, int] = field(default_factory=dict)
    parameters: Parameters = field(default_factory=Parameters)
    shortest: frozenset[BrokerId] = frozenset()  # those under shortest-path routing
    reconnect_ms_max: int = 5_000
    start_ms_max: int = 0
    clock_offset_ms_max: int = 0
    loss: float = 0.0
    duplication: float = 0.0
    failover: FailoverParameters | None = None

    @property
    def delay_ms_max(self) -> int:
        """Of the slowest link."""
        return max((link.delay_ms_max for link in self.links), default=0)


def under(strategy: str, plan: WorldPlan, *, seed: int) -> WorldPlan:
    """``plan`` with its brokers under ``strategy``, one of ``STRATEGIES``."""
    shortest: Iterable[BrokerId] = () if strategy == Strategy.MESH else plan.ids
    if strategy == MIXED:
        rng = random.Random(f"strategies {seed}")
        shortest = (id for id in sorted(plan.ids) if rng.random() < 0.5)
    return replace(plan, shortest=frozenset(shortest))


def address_of(id: BrokerId) -> str:
    """What broker ``id`` advertises."""
    return f"mqtt://b{id}"


def alias_of(id: BrokerId) -> str:
    """Another address of broker ``id``."""
    return f"mqtt://alias-{id}"

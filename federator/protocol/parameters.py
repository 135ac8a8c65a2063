"""Every timer and bound of the protocol. Defaults are for a LAN or a metropolitan network."""

from dataclasses import dataclass
from enum import StrEnum

from federator.protocol.filters import contains
from federator.protocol.types import Millis


class Strategy(StrEnum):
    """How publications reach the brokers that want a filter."""

    MESH = "mesh"
    SHORTEST_PATH = "shortest-path"


class LinkCost(StrEnum):
    """The cost of a link where the operator configured none."""

    HOPS = "hops"
    DELAY = "delay"


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of one agent. All agents of a federation should use the same."""

    redundancy: int = 2  # parents kept per core
    # How much more than the cheapest path to the core a parent's path may cost, in percent.
    parent_slack_percent: int = 100
    hello_interval_ms: Millis = Millis(1_000)  # between hellos on each link
    hello_timeout_ms: Millis = Millis(3_000)  # silence after which a link is down
    core_ann_interval_ms: Millis = Millis(5_000)  # between a core's refreshing announcements
    # Least time between two announcements of one core; the first change after a quiet time is
    # announced at once.
    core_ann_gap_ms: Millis = Millis(20)
    # A silent core is forgotten after so many announcement intervals.
    core_lifetime_intervals: int = 3
    # How long a broker without a parent waits for the core's answer. Should exceed a round trip
    # across the federation.
    solicit_timeout_ms: Millis = Millis(500)
    # How long a relay waits for the cheaper copy that it got last time, once all its nearest
    # parents have sent theirs.
    improvement_hold_ms: Millis = Millis(30)
    # How long a parent is kept while its copy of a newer number travels. Should be less than an
    # announcement interval: then one number is waited for at a time.
    parent_settle_ms: Millis = Millis(4_000)
    handover_ms: Millis = Millis(1_000)  # how long the mesh of a deposed core still carries data
    list_request_gap_ms: Millis = Millis(250)  # least time between two requests for the same list
    filters_max: int = 1_000_000  # filters one agent holds, its own and others'; more are refused
    cores_max: int = 65_536  # cores one agent holds; more are refused
    dial_back: bool = True  # whether to connect to the broker of an unknown agent that greets us
    # Otherwise, the brokers for which to keep an outbox: see ``links.outbox``.
    outboxes: frozenset[int] = frozenset()
    # Whether neighbours learn of others through us; a leaf with two hubs does not connect them.
    transit: bool = True
    # Whether our only neighbour is a leaf that announces which hub serves it.
    serves_leaf: bool = False
    link_cost: LinkCost = LinkCost.HOPS  # the cost of a link
    strategy: Strategy = Strategy.MESH  # how we ask for what our clients want
    # Other strategies, for what is contained in a filter; the first that contains it counts.
    strategies: tuple[tuple[str, Strategy], ...] = ()

    @property
    def calls_back(self) -> bool:
        """Whether some unknown agents that greet us are dialled back."""
        return self.dial_back or bool(self.outboxes)

    def strategy_of(self, filter: str) -> Strategy:
        """How we ask for ``filter``; records between agents begin with ``$`` and have meshes."""
        if filter.startswith("$"):
            return Strategy.MESH
        strategies = (strategy for outer, strategy in self.strategies if contains(outer, filter))
        return next(strategies, self.strategy)

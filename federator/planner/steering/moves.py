"""A steerer's decisions, and their texts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from federator.planner.steering.fitting import FILL_MAX
from federator.planner.steering.network import Ends, Network
from federator.protocol.messages.steering import Tree, parents_of
from federator.protocol.types import BrokerId, Millis

RELIEVED: Final = 0.9
"""Moves are worth it if at most this share of the overfill remains."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How easily something moves.

    Attributes:
        threshold: A link fuller than this share of its capacity is to be relieved.
        margin: The share of the whole cost that a move must save if no link is to be relieved.
        hold_ms: How long a flow stays where it was moved.
        candidates_max: Flows that one decision may move.
    """

    threshold: float = 0.8
    margin: float = 0.1
    hold_ms: Millis = Millis(300_000)
    candidates_max: int = 1_000


@dataclass(frozen=True, slots=True)
class Move:
    """A flow that gets a tree, another tree, or (``tree`` is ``None``) the ordinary way back."""

    origin: BrokerId
    filters: tuple[str, ...]
    rate: float  # bit/s
    tree: Tree | None
    why: str
    was: Tree | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What holds from now on.

    Attributes:
        trees: The trees in force.
        moves: What changed.
        before: The load of each link of known capacity, as a share of it.
        promised: The same after the moves.
        why: A text: why something moves or nothing does.
        cost: Rates times the costs of their links.
        cost_promised: The same after the moves.
    """

    trees: tuple[Tree, ...]
    moves: tuple[Move, ...] = ()
    before: Mapping[Ends, float] = field(default_factory=dict)
    promised: Mapping[Ends, float] = field(default_factory=dict)
    why: str = ""
    cost: float = 0.0
    cost_promised: float = 0.0


def broken(tree: Tree, destinations: tuple[BrokerId, ...], network: Network) -> str:
    """Why a tree cannot be used; empty if it can."""
    try:
        parents = parents_of(tree)
    except ValueError as error:
        return f"its tree is none: {error}"
    for ends in tree.edges:
        if ends not in network.at or not network.open[network.at[ends]]:
            return f"its tree used {ends[0]} to {ends[1]}, which is down, closed or silent"
    if not set(destinations) <= parents.keys():
        return "it is wanted elsewhere now"
    if not destinations:
        return "nobody wants it any more"
    return ""


def better(before: Mapping[Ends, float], after: Mapping[Ends, float], threshold: float) -> bool:
    """Whether links are less overfull, and by enough to be worth moves."""
    for limit in (FILL_MAX, threshold):
        was = sum(max(0.0, share - limit) for share in before.values())
        is_ = sum(max(0.0, share - limit) for share in after.values())
        if is_ > 1.001 * was + 1e-6:
            return False
        if was > 0 and is_ <= RELIEVED * was:
            return True
    return False


def fullest(shares: Mapping[Ends, float]) -> float:
    """The load of the fullest link."""
    return round(max(shares.values(), default=0.0), 3)


def named(links: Iterable[Ends], shares: Mapping[Ends, float], most: int = 3) -> str:
    """Format links for people, the fullest first."""
    ranked = sorted(links, key=lambda ends: (-shares.get(ends, 0.0), ends))
    texts = [f"{a} to {b}" + _percent(shares.get((a, b))) for a, b in ranked[:most]]
    more = f" and {len(ranked) - most} more" if len(ranked) > most else ""
    return ", ".join(texts) + more


def _percent(share: float | None) -> str:
    return "" if share is None else f" ({share:.0%} full)"

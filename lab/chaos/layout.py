"""Who publishes and who subscribes where, so that every role of a broker can be hurt alone.

A broker is an *origin* (has a publisher), a *destination* (has subscribers), both, or a *relay*
(has neither). What is promised depends on which of them a fault hits, so about a third of the
brokers stay relays; the best connected ones, without whom the others are still joined, come first.
"""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from federator.protocol.filters import matches
from federator.protocol.topology.graph import parts_of, without
from federator.protocol.types import BrokerId
from lab.grid.topology import Grid

TOPIC_ENDS: Final = ("temp", "state")
"""Each publisher takes turns between so many topics: order is promised per topic."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A client with one filter: with two, a v5 broker would send it two copies."""

    name: str
    broker: BrokerId
    filter: str
    qos: int = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """The clients of a run."""

    origins: tuple[BrokerId, ...]  # brokers with a publisher, ascending
    destinations: tuple[BrokerId, ...]  # brokers with subscribers, ascending
    relays: tuple[BrokerId, ...]  # brokers with neither, ascending
    topics: dict[str, BrokerId]  # topic to its publisher's broker
    subscribers: tuple[Subscriber, ...]  # all of them

    def pairs(self) -> list[tuple[Subscriber, str]]:
        return [(s, t) for s in self.subscribers for t in self.topics if matches(s.filter, t)]


def draw_layout(grid: Grid, rng: random.Random, qos: Sequence[int] = (1,)) -> Layout:
    """Clients for ``grid``: some brokers are origin and destination both, some are neither.

    For each of several ``qos`` every filter has a subscriber of its own, beside the others.

    Raises ``ValueError``: a grid of one broker has nobody to send to.
    """
    if len(grid.ids) < 2:
        raise ValueError("chaos needs at least 2 brokers")
    relays = _relays(grid, rng)
    rest = [here for here in grid.ids if here not in relays]
    rng.shuffle(rest)
    share = max(1, -(-2 * len(rest) // 3))
    origins, destinations = tuple(sorted(rest[:share])), tuple(sorted(rest[-share:]))
    topics = {f"chaos/{here}/{end}": here for here in origins for end in TOPIC_ENDS}
    subscribers = []
    for here in destinations:
        narrow = rng.choice([f"chaos/+/{rng.choice(TOPIC_ENDS)}", f"chaos/{rng.choice(origins)}/+"])
        exact = rng.choice(sorted(topics))
        wanted = {f"all-{here}": "chaos/#", f"some-{here}": rng.choice([narrow, exact])}
        for (name, filter), each in itertools.product(wanted.items(), qos):
            shown = f"{name}-qos-{each}" if len(qos) > 1 else name
            subscribers.append(Subscriber(shown, here, filter, each))
    return Layout(origins, destinations, tuple(sorted(relays)), topics, tuple(subscribers))


def gathered(layout: Layout, here: BrokerId) -> Layout:
    """The clients of ``layout``, all at one broker: what that one does without a federation."""
    subscribers = tuple(replace(each, broker=here) for each in layout.subscribers)
    return Layout((here,), (here,), (), dict.fromkeys(layout.topics, here), subscribers)


def _relays(grid: Grid, rng: random.Random) -> set[BrokerId]:
    """A third of the brokers, chosen so that each one's death leaves the others joined."""
    neighbours = grid.neighbours
    order = list(grid.ids)
    rng.shuffle(order)
    order.sort(key=lambda here: (is_cut_vertex(grid, here), -len(neighbours[here])))
    count = min(len(order) // 3, len(order) - 2)
    return set(order[:count])


def is_cut_vertex(grid: Grid, here: BrokerId) -> bool:
    return len(parts_of(without(grid.neighbours, {here}))) > 1

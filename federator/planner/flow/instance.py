"""One problem: topics with publishers and subscribers, and links of limited capacity.

A *topic* has a rate, one publisher and some subscribers; each pair (topic, subscriber) is a
*request*. Links become *arcs*, one per direction that can be used. Arcs that share a capacity form
a *channel*: both directions of a link under ``Capacity.EDGE`` (half-duplex radio, the paper's (5)),
each arc by itself under ``Capacity.ARC`` (full duplex, the paper's (29)).

Arcs that no topic may use are left out: no arc enters a publisher and none leaves a subscriber, so
neither can forward, or invent, another node's topic.

Source: Manzoni 2022, 3; docs/planner.md 1 and 2.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.intp]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

TOLERANCE = 1e-6
"""Rounding error allowed in a capacity or a cost."""


class Role(StrEnum):
    """What a node may do. Only a broker forwards; it may publish and subscribe, too."""

    BROKER = "broker"
    PUBLISHER = "publisher"
    SUBSCRIBER = "subscriber"


class Capacity(StrEnum):
    """What one capacity limits: both directions of a link together, or each by itself."""

    EDGE = "edge"
    ARC = "arc"


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """N nodes, A arcs, E channels, K topics, R requests. Indices are positions in these arrays."""

    name: str  # for people
    names: tuple[str, ...]  # node names, length N
    roles: tuple[Role, ...]  # length N
    relays: BoolArray  # whether each node is a broker, shape (N,)
    positions: FloatArray | None  # shape (N, 2), where to draw each node, or None
    capacity_kind: Capacity  # what a channel is
    tail: IntArray  # node each arc leaves, shape (A,)
    head: IntArray  # node each arc enters, shape (A,). No two arcs share tail and head.
    cost: FloatArray  # of one request's copy on each arc, shape (A,), not negative
    channel: IntArray  # channel of each arc, shape (A,)
    capacity: FloatArray  # shape (E,), in the unit of rates
    rate: FloatArray  # shape (K,), positive
    publisher: IntArray  # node of each topic, shape (K,)
    request_topic: IntArray  # topic of each request, shape (R,), ascending
    request_node: IntArray  # subscriber of each request, shape (R,)
    # Requests of topic k are ``first_request[k]`` up to ``first_request[k + 1]``, shape (K + 1,).
    first_request: IntArray
    unmet_penalty: float  # price of a request that is not served
    topic_names: tuple[str, ...]  # length K

    @property
    def nodes(self) -> int:
        """N, the number of nodes."""
        return len(self.names)

    @property
    def arcs(self) -> int:
        """A, without the dummy arcs that stand for unmet requests."""
        return len(self.tail)

    @property
    def topics(self) -> int:
        """K, the number of topics."""
        return len(self.rate)

    @property
    def requests(self) -> int:
        """R, the number of requests."""
        return len(self.request_topic)

    @property
    def fan_out(self) -> IntArray:
        """Subscribers of each topic, the paper's M = abs(T^k), shape (K,)."""
        return np.diff(self.first_request)

    @property
    def costs_are_whole(self) -> bool:
        """Whether every routing costs a whole number, so that a bound may be rounded up."""
        return bool((self.cost % 1 == 0).all() and self.unmet_penalty % 1 == 0)

    def requests_of(self, topic: int) -> slice:
        """The positions of the requests of ``topic``."""
        return slice(int(self.first_request[topic]), int(self.first_request[topic + 1]))

    def usable(self, topic: int) -> BoolArray:
        """Arcs that may carry ``topic``, shape (A,): wide enough, and between permitted nodes."""
        source = self.publisher[topic]
        subscribes = np.zeros(self.nodes, dtype=bool)
        subscribes[self.request_node[self.requests_of(topic)]] = True
        may_leave = self.relays.copy()
        may_leave[source] = True
        may_enter = self.relays | subscribes
        may_enter[source] = False
        fits = self.rate[topic] <= self.capacity[self.channel] + TOLERANCE
        allowed: BoolArray = may_leave[self.tail] & may_enter[self.head] & fits
        return allowed


def dear_penalty(cost: FloatArray, relays: int, requests: int) -> float:
    """A penalty for an unmet request above the cost of any routing of all requests.

    A path enters each broker at most once and then its subscriber, so no path costs more than the
    ``relays + 1`` dearest arcs.
    """
    dearest = np.sort(cost)[::-1][: relays + 1]
    return float(np.ceil(dearest.sum() * max(requests, 1)) + 1)

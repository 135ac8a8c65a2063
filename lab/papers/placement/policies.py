"""Delegation: which topics an edge broker owns, and what then crosses the edge of its network.

An edge broker that owns a topic keeps its publications inside unless somebody outside wants them,
takes what comes from outside once for all its subscribers, and pays for that with messages handled
and a subscription table. A topic it does not own goes to the central broker whatever happens, and
comes back once per subscriber. So a policy is nothing but a set of (topic, network) pairs, and one
account serves all six.

Source: Fawwaz 2022, 3 and 5.1; docs/placement.md 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

TOPIC_NAME_BYTES = 40
SUBSCRIBER_BYTES = 6
"""Table 2 of the paper: an IPv4 address and a port."""


class Policy(StrEnum):
    """Who manages a topic. The first three are the paper's own."""

    LP = "lp"  # owns what is published and subscribed here
    NS = "ns"  # and what is published here and subscribed nowhere here
    EP = "ep"  # and what comes from outside for two or more subscribers here
    CENTRALISED = "centralised"  # owns nothing
    SF = "sf"  # subscription flooding: every broker knows everything
    EMMA = "emma"  # as SF, but topics without outside interest are known not to be flooded


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Who publishes and subscribes what where, in N networks over T topics."""

    published: Matrix  # shape (T, N), messages per second that clients of a network publish
    subscribers: Matrix  # shape (T, N), how many of its clients subscribe; whole numbers

    def __post_init__(self) -> None:
        if self.published.ndim != 2 or self.published.shape != self.subscribers.shape:
            shapes = f"{self.published.shape} and {self.subscribers.shape}"
            raise ValueError(f"published and subscribers must both have shape (T, N), got {shapes}")
        if self.published.size and min(self.published.min(), self.subscribers.min()) < 0:
            raise ValueError("rates and subscribers must not be negative")


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """What a policy costs."""

    external: float  # messages per second that cross the edge of some network
    handled: Matrix  # shape (N,), messages per second into and out of each edge broker
    table_bytes: Matrix  # shape (N,), size of each edge broker's subscription table


class Totals:
    """What every policy's account needs of one traffic, computed once."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        # By, and in, all networks, shape (T, 1).
        self.published: Matrix = traffic.published.sum(axis=1, keepdims=True)
        self.subscribers: Matrix = traffic.subscribers.sum(axis=1, keepdims=True)
        # Whether some client here publishes, here subscribes, elsewhere subscribes, shape (T, N).
        self.local: Mask = traffic.published > 0
        self.wanted: Mask = traffic.subscribers > 0
        self.wanted_outside: Mask = traffic.subscribers < self.subscribers
        # Published by other networks, shape (T, N).
        self.comes_in: Matrix = self.published - traffic.published


def delegated(totals: Totals, policy: Policy) -> Mask:
    """The topics that each edge broker owns under ``policy``, shape (T, N)."""
    local, wanted = totals.local, totals.wanted
    match policy:
        case Policy.CENTRALISED:
            return np.zeros_like(local)
        case Policy.SF | Policy.EMMA:
            return np.ones_like(local)
        case Policy.LP:
            return local & wanted
        case Policy.NS:
            return local
        case Policy.EP:
            shared: Mask = (totals.traffic.subscribers >= 2) & (totals.comes_in > 0)
            return local | shared


def account(totals: Totals, policy: Policy) -> Account:
    owned = delegated(totals, policy)
    traffic = totals.traffic
    up = np.where(owned & ~totals.wanted_outside, 0.0, traffic.published)
    once = np.where(totals.wanted, totals.comes_in, 0.0)
    deliveries = traffic.subscribers * totals.published
    down = np.where(owned, once, deliveries)
    handled = np.where(owned, traffic.published + up + once + deliveries, 0.0)
    return Account(
        external=float(up.sum() + down.sum()),
        handled=_sum(handled),
        table_bytes=_table_bytes(totals, owned, policy),
    )


def compare(traffic: Traffic) -> Mapping[Policy, Account]:
    totals = Totals(traffic)
    return {policy: account(totals, policy) for policy in Policy}


def inter_broker_messages(totals: Totals, owned: Mask) -> Matrix:
    """Messages per second between a federation's hub and each edge, up and down, shape (2, N).

    The hub wants everything, as a central broker does; what an edge owns and nobody outside wants
    stays there. Unlike the paper's central broker, a federation delivers to a broker once, however
    many of its clients subscribe.
    """
    traffic = totals.traffic
    up = np.where(owned & ~totals.wanted_outside, 0.0, traffic.published)
    down = np.where(totals.wanted, totals.comes_in, 0.0)
    return np.stack([_sum(up), _sum(down)])


def _table_bytes(totals: Totals, owned: Mask, policy: Policy) -> Matrix:
    """Names of the topics in the table, and who subscribed; topics without subscribers are not."""
    here = totals.traffic.subscribers
    own = np.where(totals.wanted, TOPIC_NAME_BYTES + SUBSCRIBER_BYTES * here, 0.0)
    if policy not in (Policy.SF, Policy.EMMA):
        return _sum(np.where(owned, own, 0.0))
    everyone = TOPIC_NAME_BYTES + SUBSCRIBER_BYTES * totals.subscribers
    if policy is Policy.SF:
        flooded: Mask = totals.subscribers > 0
    else:
        outside: Mask = totals.wanted & (totals.comes_in > 0)
        flooded = np.logical_or.reduce(outside, axis=1, keepdims=True)
    return _sum(np.where(flooded, everyone, own))


def _sum(by_topic: Matrix) -> Matrix:
    """Over topics: what is left is by network, shape (N,)."""
    total: Matrix = by_topic.sum(axis=0)
    return total

"""Messages down a tree with codecs, packet by packet, all messages and all seeds at once.

A codec that got 16 packets or more decodes and sends 16 + t different ones; one that got fewer, and
who is no codec, passes on what came. A node has the message when 16 of its packets arrive,
whichever. Links take 50 ms, making repair packets 5 ms, decoding 10 ms; nobody waits for bandwidth.

Source: Esposito 2018, 4.
"""

from dataclasses import dataclass

import numpy as np

from lab.papers.codecs.loss import SOURCE_PACKETS, received
from lab.papers.codecs.plan import Plan
from lab.papers.codecs.tree import FloatArray, IntArray, Tree

LINK_MS, CODE_MS, DECODE_MS = 50.0, 5.0, 10.0

CELLS_MAX = 4_000_000  # links times messages computed at once


@dataclass(frozen=True, eq=False)
class Lossy:
    """A tree, or a forest, and how its links lose."""

    tree: Tree  # of N nodes
    plr: FloatArray  # of the link from the parent, shape (N,)
    abl: FloatArray  # likewise


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of some messages; sums, so that outcomes can be added."""

    messages: int  # published by each root
    delivered: FloatArray  # messages that each node has, shape (N,)
    waited_ms: FloatArray  # sum over them of the time since the root had them, shape (N,)
    packets: FloatArray  # sent towards each node, repair and repeated ones too, shape (N,)

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.messages + other.messages,
            self.delivered + other.delivered,
            self.waited_ms + other.waited_ms,
            self.packets + other.packets,
        )


@dataclass(frozen=True, eq=False)
class Metrics:
    """The paper's three, for each root, shape (R,)."""

    # share of (message, subscriber) pairs delivered; all but roots subscribe.
    resiliency: FloatArray
    latency_ms: FloatArray  # mean over those delivered
    overhead: FloatArray  # packets sent on links, as a multiple of 16 per link


def metrics(tree: Tree, outcome: Outcome) -> Metrics:
    def summed(values: FloatArray) -> FloatArray:
        below = slice(tree.roots, None)
        found = np.bincount(tree.root[below], values[below], minlength=tree.roots)
        return found.astype(np.float64)

    subscribers = summed(np.ones(len(tree)))
    delivered = summed(outcome.delivered)
    return Metrics(
        delivered / (subscribers * outcome.messages),
        summed(outcome.waited_ms) / np.maximum(delivered, 1.0),
        summed(outcome.packets) / (subscribers * outcome.messages * SOURCE_PACKETS),
    )


def simulate(lossy: Lossy, plan: Plan, messages: int, rng: np.random.Generator) -> Outcome:
    tree = lossy.tree
    found = Outcome(0, *(np.zeros(len(tree)) for _ in range(3)))
    most = max(CELLS_MAX // len(tree), 1)
    for start in range(0, messages, most):
        found += _part(lossy, plan, min(most, messages - start), rng)
    return found


def _part(lossy: Lossy, plan: Plan, messages: int, rng: np.random.Generator) -> Outcome:
    tree = lossy.tree
    delivered, packets = np.zeros(len(tree)), np.zeros(len(tree))
    has: IntArray = np.full((tree.roots, messages), SOURCE_PACKETS, dtype=np.int64)
    leaves = _sent(has, plan, tree.levels[0])
    for above, level in zip(tree.levels, tree.levels[1:], strict=False):
        sent = leaves[tree.parent[level] - above.start]
        packets[level] = sent.sum(axis=1)
        has = received(sent, lossy.plr[level], lossy.abl[level], rng)
        delivered[level] = (has >= SOURCE_PACKETS).sum(axis=1)
        leaves = _sent(has, plan, level)
    return Outcome(messages, delivered, delivered * delays_ms(tree, plan), packets)


def _sent(has: IntArray, plan: Plan, level: slice) -> IntArray:
    """Packets on each link below, shape of ``has``."""
    able = plan.codec[level, None] & (has >= SOURCE_PACKETS)
    return np.where(able, SOURCE_PACKETS + plan.total[level, None], has)


def delays_ms(tree: Tree, plan: Plan) -> FloatArray:
    """Until each node has a message that reaches it, shape (N,)."""
    coded = bool(plan.codec.any())
    onwards = np.where(plan.codec, DECODE_MS + CODE_MS, 0.0)
    onwards[: tree.roots] = np.where(plan.codec[: tree.roots], CODE_MS, 0.0)
    found = np.zeros(len(tree))
    for level in tree.levels[1:]:
        above = tree.parent[level]
        found[level] = found[above] + onwards[above] + LINK_MS
    found[tree.roots :] += DECODE_MS if coded else 0.0
    return found

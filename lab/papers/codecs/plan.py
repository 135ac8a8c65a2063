"""What a planner is given, what it decides, and what that costs.

A codec that has received enough packets can make as many different ones as it likes; who is no
codec passes on what came. Loss is planned for with one number per link: how many packets it may eat
of one message. With t(i) repair packets sent by i on each of its links beyond the message's 16,

    survives   s(i) = t(parent) - lost(i) >= 0      else i cannot decode
    not codec  t(i) = s(i)
    codec      t(i) = s(i) + rho(i), rho(i) >= 0                           equations (2), (3)

Roots are codecs at no charge. Two costs: the paper's charges a codec's own redundancy on its own
links, which makes everything the root adds look cheap, for nobody pays for passing it on. The
**link load** counts repair packets on every link.

Source: Esposito 2018, (1)-(8), corrected as in docs/codecs.md.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from lab.papers.codecs.loss import BLOCK_MAX, SOURCE_PACKETS
from lab.papers.codecs.tree import BoolArray, CodecError, FloatArray, IntArray, Tree

REPAIR_MAX = BLOCK_MAX - SOURCE_PACKETS  # repair packets per message and link


class Charge(StrEnum):
    """What redundancy costs."""

    PAPER = "paper"
    LINK_LOAD = "link-load"


@dataclass(frozen=True, eq=False)
class Problem:
    """Where to put codecs. Raises ``CodecError``: shapes or values make no sense."""

    tree: Tree  # or a forest
    lost: IntArray  # packets to plan for on the link from the parent, 0 at roots, shape (N,)
    opening: float = 0.0  # cost of a codec that is no root
    charge: Charge = Charge.PAPER  # what redundancy costs

    def __post_init__(self) -> None:
        if self.lost.shape != self.tree.parent.shape:
            raise CodecError(f"lost: want shape {self.tree.parent.shape}, got {self.lost.shape}")
        if (self.lost < 0).any() or (self.lost > REPAIR_MAX).any():
            raise CodecError(f"lost: want 0 to {REPAIR_MAX}")
        if self.lost[: self.tree.roots].any():
            raise CodecError("lost: want 0 at roots, which have no link above")
        if not (np.isfinite(self.opening) and self.opening >= 0):
            raise CodecError(f"opening: want 0 or more, got {self.opening}")


@dataclass(frozen=True, eq=False)
class Plan:
    """Who is a codec, and what travels."""

    codec: BoolArray  # shape (N,). Roots are, unless nothing is added.
    total: IntArray  # t, repair packets sent on each link below, shape (N,); 0 at leaves


def surviving(problem: Problem, total: IntArray) -> IntArray:
    """s, repair packets that reach each node, shape of ``total``; below 0: it cannot decode."""
    roots = problem.tree.roots
    found = np.zeros_like(total)
    found[..., roots:] = total[..., problem.tree.parent[roots:]] - problem.lost[roots:]
    return found


def checked(problem: Problem, plan: Plan) -> Plan:
    """``plan``, if every node can decode and only codecs add; else raises ``CodecError``."""
    here = surviving(problem, plan.total)
    if (here < 0).any():
        raise CodecError(f"nodes {np.flatnonzero(here < 0)[:5].tolist()} cannot decode")
    inside = problem.tree.children > 0
    added = np.where(inside, plan.total - here, 0)
    if (added < 0).any() or (added[~plan.codec] != 0).any():
        raise CodecError("want redundancy added by codecs only, and never taken away")
    if plan.total.max(initial=0) > REPAIR_MAX:
        raise CodecError(f"want at most {REPAIR_MAX} repair packets, got {plan.total.max()}")
    return plan


def added(problem: Problem, plan: Plan) -> IntArray:
    """rho, what each node adds to what reaches it, shape (N,)."""
    return np.where(plan.codec, plan.total - np.maximum(surviving(problem, plan.total), 0), 0)


def cost(problem: Problem, plan: Plan, charge: Charge | None = None) -> float:
    """Recounted from the plan, with the opening of codecs that are no roots."""
    opened = int(plan.codec[problem.tree.roots :].sum()) * problem.opening
    by_paper = (charge or problem.charge) is Charge.PAPER
    paid = added(problem, plan) if by_paper else plan.total
    return float((paid * problem.tree.children).sum() + opened)


def needs(problem: Problem, codec: BoolArray) -> IntArray:
    """What each node must send so that all down to the next codecs can decode, shape (..., N)."""
    tree = problem.tree
    found = np.zeros(codec.shape, dtype=np.int64)
    for depth in range(len(tree.levels) - 1, 0, -1):
        here, above = tree.levels[depth], tree.interior(tree.levels[depth - 1])
        asked = problem.lost[here] + np.where(codec[..., here], 0, found[..., here])
        starts = tree.first_child[above] - here.start
        found[..., above] = np.maximum.reduceat(asked, starts, axis=-1)
    return found


def totals(problem: Problem, codec: BoolArray) -> IntArray:
    """t under equation (3): codecs add just what is missing, shape (..., N)."""
    tree = problem.tree
    wanted = needs(problem, codec)
    found = np.where(np.arange(len(tree)) < tree.roots, wanted, 0)
    for level in tree.levels[1:]:
        here = found[..., tree.parent[level]] - problem.lost[level]
        raised = np.where(codec[..., level], np.maximum(here, wanted[..., level]), here)
        found[..., level] = np.where(tree.children[level] > 0, raised, 0)
    return found


def costs(problem: Problem, codec: BoolArray, found: IntArray) -> FloatArray:
    """The cost of several choices at once, shape (...)."""
    tree = problem.tree
    paid = found
    if problem.charge is Charge.PAPER:
        paid = np.where(codec & (tree.children > 0), found - surviving(problem, found), 0)
    opened = codec[..., tree.roots :].sum(axis=-1) * problem.opening
    charged: FloatArray = (paid * tree.children).sum(axis=-1) + opened
    return charged


def with_codecs(problem: Problem, codec: BoolArray) -> Plan:
    """The plan of these codecs under (3); roots are added, leaves and idle codecs stay as given."""
    chosen = codec & (problem.tree.children > 0)
    chosen[: problem.tree.roots] = True
    return Plan(chosen, totals(problem, chosen))

"""The schemes that decide once, by name; those without a choice to make are here themselves.

Source: Esposito 2018, 2 and 3.
"""

from collections.abc import Callable
from enum import StrEnum

import numpy as np

from lab.papers.codecs.exact import solve_exactly
from lab.papers.codecs.games import Rule, play
from lab.papers.codecs.genetic import evolve
from lab.papers.codecs.nack import complain
from lab.papers.codecs.plan import Plan, Problem, with_codecs


def best_effort(problem: Problem) -> Plan:
    """The plan without any redundancy."""
    nodes = len(problem.tree)
    return Plan(np.zeros(nodes, dtype=bool), np.zeros(nodes, dtype=np.int64))


def every_node(problem: Problem) -> Plan:
    """Equation (2): each node covers its own links, as network coding would."""
    return with_codecs(problem, problem.tree.children > 0)


class Scheme(StrEnum):
    """Who decides, and how."""

    BEST_EFFORT = "best effort"
    ROOT_ONLY = "root only"
    EVERY_NODE = "every node"
    COMPLAINTS = "complaints"
    NON_COOPERATIVE = "non-cooperative"
    LEADER_FOLLOWER = "leader-follower"
    GENETIC = "genetic"
    EXACT = "exact"


def decide(scheme: Scheme, problem: Problem, rng: np.random.Generator) -> Plan:
    """The plan of ``scheme`` for one tree; only the last two look at what redundancy costs."""
    return _PLANS[scheme](problem, rng)


_PLANS: dict[Scheme, Callable[[Problem, np.random.Generator], Plan]] = {
    Scheme.BEST_EFFORT: lambda problem, _: best_effort(problem),
    # Equation (1): the root covers the worst way down, and everyone gets that much.
    Scheme.ROOT_ONLY: lambda problem, _: with_codecs(problem, best_effort(problem).codec),
    Scheme.EVERY_NODE: lambda problem, _: every_node(problem),
    Scheme.COMPLAINTS: lambda problem, _: complain(problem)[0],
    Scheme.NON_COOPERATIVE: lambda problem, rng: play(problem, Rule.ALL_AT_ONCE, rng).plan,
    Scheme.LEADER_FOLLOWER: lambda problem, rng: play(problem, Rule.LEADER_FIRST, rng).plan,
    Scheme.GENETIC: evolve,
    Scheme.EXACT: lambda problem, _: solve_exactly(problem),
}

"""The schemes that decide once, by name; those without a choice to make are here themselves.

Source: Esposito 2018, 2 and 3.
"""

from enum import StrEnum

import numpy as np

from lab.papers.codecs.exact import solve_exactly
from lab.papers.codecs.games import Rule
from lab.papers.codecs.genetic import evolve
from lab.papers.codecs.nack import complain
from lab.papers.codecs.plan import Plan, Problem, with_codecs
from lab.papers.codecs.rounds import play


def best_effort(problem: Problem) -> Plan:
    """The plan without any redundancy."""
    nodes = len(problem.tree)
    return Plan(np.zeros(nodes, dtype=bool), np.zeros(nodes, dtype=np.int64))


def root_only(problem: Problem) -> Plan:
    """Equation (1): the root covers the worst way down, and everyone gets that much."""
    return with_codecs(problem, np.zeros(len(problem.tree), dtype=bool))


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
    match scheme:
        case Scheme.BEST_EFFORT:
            return best_effort(problem)
        case Scheme.ROOT_ONLY:
            return root_only(problem)
        case Scheme.EVERY_NODE:
            return every_node(problem)
        case Scheme.COMPLAINTS:
            return complain(problem)[0]
        case Scheme.NON_COOPERATIVE:
            return play(problem, Rule.ALL_AT_ONCE, rng).plan
        case Scheme.LEADER_FOLLOWER:
            return play(problem, Rule.LEADER_FIRST, rng).plan
        case Scheme.GENETIC:
            return evolve(problem, rng)
        case Scheme.EXACT:
            return solve_exactly(problem)

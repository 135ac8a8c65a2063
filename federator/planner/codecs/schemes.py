"""All schemes that decide once, by name.

Source: papers/fec-codec-placement.txt, sections 2 and 3.
"""

from enum import StrEnum

import numpy as np

from federator.planner.codecs.exact import solve_exactly
from federator.planner.codecs.games import Rule
from federator.planner.codecs.genetic import evolve
from federator.planner.codecs.nack import complain
from federator.planner.codecs.plan import Plan, Problem
from federator.planner.codecs.rounds import play
from federator.planner.codecs.simple import best_effort, every_node, root_only


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

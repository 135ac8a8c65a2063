"""The three schemes without a decision: nothing, only the roots, or everybody.

Source: papers/fec-codec-placement.txt, section 2, equations (1) and (2).
"""

import numpy as np

from federator.planner.codecs.plan import Plan, Problem, with_codecs


def best_effort(problem: Problem) -> Plan:
    """No redundancy at all."""
    nodes = len(problem.tree)
    return Plan(np.zeros(nodes, dtype=bool), np.zeros(nodes, dtype=np.int64))


def root_only(problem: Problem) -> Plan:
    """(1): the root covers the worst way down, and everyone gets that much."""
    return with_codecs(problem, np.zeros(len(problem.tree), dtype=bool))


def every_node(problem: Problem) -> Plan:
    """(2): each covers its own links, as network coding would."""
    return with_codecs(problem, problem.tree.children > 0)

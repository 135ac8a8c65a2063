"""The two games: equilibria, speed, and that nobody knows more than the neighbours say."""

import numpy as np
import pytest

from lab.papers.codecs.games import HORIZON, Game, Rule, play
from lab.papers.codecs.plan import Problem, checked, needs, surviving, totals
from tests.lab.papers.codecs.trees import random_problem


def alone_cost(problem, codec, node):
    """(9) for one node, with (3) worked out over the whole tree."""
    if codec[node]:
        return problem.opening
    here = surviving(problem, totals(problem, codec))[node]
    return here + needs(problem, codec)[node]


@pytest.mark.parametrize("seed", range(10))
def test_in_the_end_no_player_can_gain_by_changing_its_role(seed):
    posed = random_problem(seed, nodes=60, opening=12.0, lost_max=4)
    played = play(posed, Rule.ALL_AT_ONCE, np.random.default_rng(seed))
    assert played.settled

    for node in np.flatnonzero(posed.tree.children)[1:]:
        other = played.plan.codec.copy()
        other[node] = not other[node]
        assert alone_cost(posed, played.plan.codec, node) <= alone_cost(posed, other, node)


@pytest.mark.parametrize("fanout_max", [2, 4, 50])
@pytest.mark.parametrize(("lost_max", "opening"), [(2, 16.0), (7, 28.0), (1, 20.0)])
@pytest.mark.few(3)
def test_leaders_and_followers_agree_within_depth_and_horizon(fanout_max, lost_max, opening):
    posed = random_problem(
        1, nodes=10_000, lost_max=lost_max, opening=opening, fanout_max=fanout_max
    )
    depth = len(posed.tree.levels) - 1

    played = play(posed, Rule.LEADER_FIRST, np.random.default_rng(1))

    assert played.settled
    assert played.rounds <= depth + HORIZON < depth + 5
    checked(posed, played.plan)


@pytest.mark.parametrize("rule", Rule)
def test_news_travel_one_hop_per_round(rule):
    posed = random_problem(3, nodes=200, lost_max=3, opening=9.0)
    lost = posed.lost.copy()
    lost[-1] += 5
    hops = distances(posed.tree, len(lost) - 1)
    one = Game(posed, rule, np.random.default_rng(0))
    other = Game(Problem(posed.tree, lost, posed.opening), rule, np.random.default_rng(0))

    touched = 0
    for rounds in range(1, 30):
        one.round()
        other.round()
        changed = one.plan.codec != other.plan.codec
        changed |= one.plan.total != other.plan.total
        assert not changed[hops > rounds].any()
        touched = max(touched, int(hops[changed].max(initial=0)))
    assert touched > 2


def distances(tree, start):
    found = np.full(len(tree), -1)
    found[start], edge = 0, [start]
    for node in edge:
        beside = [int(tree.parent[node]), *np.flatnonzero(tree.parent == node).tolist()]
        for near in beside:
            if near >= 0 and found[near] < 0:
                found[near] = found[node] + 1
                edge.append(near)
    return found

"""Losses and messages, against closed forms, a pencil, and packets sent one by one."""

import random

import numpy as np
import pytest

from lab.papers.codecs.claims import estimate
from lab.papers.codecs.gossip import Mode, simulate_gossip
from lab.papers.codecs.loss import Loss, lost_at_most, lost_distribution, planned_for
from lab.papers.codecs.plan import Plan, Problem
from lab.papers.codecs.schemes import best_effort
from lab.papers.codecs.simulator import Lossy, metrics, simulate
from lab.papers.codecs.tree import CodecError, Tree, random_tree

CHAIN = Tree(np.array([-1, 0, 1, 2, 3, 4]))
PRINTED = (0.840, 0.706, 0.593, 0.499, 0.419)
WITHIN = 0.01
FANOUT = 5  # for 30 nodes


def lossy(tree, plr=0.02, abl=2.0):
    return Lossy(tree, np.full(len(tree), plr), np.full(len(tree), abl))


def nothing(tree):
    return best_effort(Problem(tree, np.zeros(len(tree), dtype=np.int64)))


def test_best_effort_delivers_what_the_readings_print():
    found = simulate(lossy(CHAIN), nothing(CHAIN), 200_000, np.random.default_rng(1))

    assert (found.delivered / found.messages)[1:] == pytest.approx(PRINTED, rel=WITHIN)


def test_the_distribution_of_losses_is_that_of_the_chain():
    loss = Loss()
    found = lost_distribution(loss, 16)

    assert found.sum() == pytest.approx(1)
    assert found @ np.arange(17) == pytest.approx(16 * loss.plr)
    assert found[0] == pytest.approx((1 - loss.plr) * (1 - loss.to_bad) ** 15)
    assert [lost_at_most(loss, share=s) for s in (0.8, 0.9, 0.95, 0.98)] == [0, 1, 2, 4]
    apart = planned_for(np.array([0.02, 0.0, 0.2, 0.02]), np.array([2.0, 1.0, 4.0, 2.0]), share=0.9)
    assert apart.tolist() == [1, 0, lost_at_most(Loss(0.2, 4.0), share=0.9), 1]
    with pytest.raises(CodecError, match="want 0 <= PLR < 1"):
        Loss(plr=0.9, abl=2.0)


def test_repair_packets_help_as_the_chain_says():
    one = Tree(np.array([-1, 0]))
    plan = Plan(np.array([True, False]), np.array([3, 0]))

    found = simulate(lossy(one), plan, 100_000, np.random.default_rng(2))

    expected = lost_distribution(Loss(), 19)[:4].sum()
    assert found.delivered[1] / found.messages == pytest.approx(expected, abs=0.002)
    assert found.packets[1] == 19 * found.messages


def test_a_tree_with_codecs_behaves_as_packets_sent_one_by_one():
    tree = Tree(np.array([-1, 0, 0, 1, 1, 3, 3]))
    plan = Plan(np.isin(np.arange(7), [0, 3]), np.array([3, 1, 0, 4, 0, 0, 0]))
    messages = 20_000

    fast = simulate(lossy(tree, 0.08, 3.0), plan, messages, np.random.default_rng(3))

    slow = one_by_one(tree, plan, Loss(0.08, 3.0), messages, random.Random(3))
    assert fast.delivered / messages == pytest.approx(slow[0] / messages, abs=0.015)
    assert fast.packets / messages == pytest.approx(slow[1] / messages, abs=0.1)


def one_by_one(tree, plan, loss, messages, rng):
    delivered, packets = np.zeros(len(tree)), np.zeros(len(tree))
    for _ in range(messages):
        has = [16 if parent < 0 else 0 for parent in tree.parent]
        for node in range(len(tree)):
            if node:
                above = int(tree.parent[node])
                able = plan.codec[above] and has[above] >= 16
                bad = rng.random() < loss.plr
                for _ in range(16 + int(plan.total[above]) if able else has[above]):
                    packets[node] += 1
                    has[node] += not bad
                    bad = rng.random() < (1 - loss.to_good if bad else loss.to_bad)
            delivered[node] += node > 0 and has[node] >= 16
    return delivered, packets


def test_time_and_packets_without_loss_are_those_of_a_pencil():
    line = Tree(np.array([-1, 0, 1]))
    both = Plan(np.array([True, True, False]), np.array([4, 2, 0]))

    coded = metrics(line, simulate(lossy(line, 0.0), both, 10, np.random.default_rng(0)))
    plain = metrics(line, simulate(lossy(line, 0.0), nothing(line), 10, np.random.default_rng(0)))

    # code 5, link 50, decode 10; and below decode 10, code 5, link 50, decode 10
    assert coded.latency_ms == pytest.approx([(65 + 130) / 2])
    assert coded.overhead == pytest.approx([(20 + 18) / 32])
    assert (plain.latency_ms[0], plain.overhead[0], plain.resiliency[0]) == (75, 1, 1)


def test_gossip_repairs_what_the_tree_loses():
    tree = random_tree(40, np.random.default_rng(4))
    alone = metrics(tree, simulate(lossy(tree), nothing(tree), 500, np.random.default_rng(5)))

    for mode in Mode:
        found = simulate_gossip(lossy(tree), mode, 500, np.random.default_rng(6))
        assert alone.resiliency[0] < 0.7 < 0.99 < metrics(tree, found).resiliency[0], mode


def test_without_loss_pull_sends_lists_only_and_push_sends_all_again():
    tree = random_tree(30, np.random.default_rng(7))
    told = 30 * FANOUT
    sure = lossy(tree, 0.0)

    pulled = simulate_gossip(
        sure, Mode.PULL, 50, np.random.default_rng(8), interval_ms=10_000.0
    ).packets.sum()
    pushed = simulate_gossip(sure, Mode.PUSH, 50, np.random.default_rng(8)).packets.sum()

    # Some lists come before the message itself does, and children of a node are not told.
    assert 16 * 29 + 0.9 * told < pulled / 50 < 16 * 29 + 2 * told
    assert 16 * (29 + 0.9 * told) < pushed / 50 <= 16 * (29 + told)


def test_nobody_tells_its_own_children():
    star = Tree(np.array([-1] + [0] * 29))

    pushed = simulate_gossip(lossy(star, 0.0), Mode.PUSH, 50, np.random.default_rng(9))

    # The root could only tell its children; each of the 29 tells its fill.
    assert pushed.packets.sum() == 50 * 16 * (29 + 29 * FANOUT)


def test_an_interval_is_students():
    found = estimate([1.0, 2.0, 3.0])

    assert (found.mean, found.half) == (2.0, pytest.approx(2.4841, abs=1e-4))
    assert str(found) == "2.0 +- 2.5"

"""Federations whose agents follow trees drawn by chance, told to some and not to others."""

import pytest

from federator.protocol import data_plane
from lab.sim import campaign, scenario
from lab.sim.messages import campaign as messages
from lab.sim.messages import story

SEEDS = 12


def run(strategy, seed):
    drawn = scenario.draw(seed, nodes=8, strategy=strategy, steered=True)
    return campaign.run_scenario(drawn)


@pytest.mark.parametrize("strategy", ["shortest-path", "mixed"])
def test_in_every_mixture_of_plans_each_publication_comes_once(strategy):
    results = [run(strategy, seed) for seed in range(SEEDS)]

    assert [each.violation for each in results] == [None] * SEEDS
    for what in ("planned frame", "tree torn", "notice steer.followed", "notice steer.ended"):
        assert sum(what in each.fired for each in results) > SEEDS // 4, what


def test_under_custody_nothing_is_lost_while_plans_change():
    drawn = [story.draw(seed, strategy="shortest-path", steered=True) for seed in range(SEEDS)]
    results = [messages.run_story(each) for each in drawn]

    assert [each.violation for each in results] == [None] * SEEDS
    assert sum("planned frame" in each.fired for each in results) > SEEDS // 6


def test_a_tree_that_nobody_rescues_from_is_found(monkeypatch):
    monkeypatch.setattr(data_plane, "rescued", lambda frame, route, *others: route)

    invariants = {
        result.violation.invariant
        for seed in range(SEEDS)
        if (result := run("shortest-path", seed)).violation is not None
    }

    assert invariants == {"mixed_plans_reach_each_once"}

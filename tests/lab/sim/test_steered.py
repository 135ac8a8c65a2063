"""Federations whose agents follow plans drawn by chance, told to some and not to others."""

import pytest

from federator.protocol.data import plane
from federator.protocol.routing.topic_routing import TopicRouting
from lab.sim import campaign, scenario
from lab.sim.messages import campaign as messages
from lab.sim.messages import story

SEEDS = 12


def run(strategy, seed, **more):
    drawn = scenario.draw(seed, nodes=8, strategy=strategy, steered=True, **more)
    return campaign.run_scenario(drawn)


def run_messages(seed, **more):
    return messages.run_story(story.draw(seed, strategy="shortest-path", steered=True, **more))


@pytest.mark.parametrize("strategy", ["shortest-path", "mixed"])
def test_in_every_mixture_of_plans_each_publication_comes_once(strategy):
    results = [run(strategy, seed) for seed in range(SEEDS)]

    assert [each.violation for each in results] == [None] * SEEDS
    for what in ("planned frame", "tree torn", "notice steer.followed", "notice steer.ended"):
        assert sum(what in each.fired for each in results) > SEEDS // 4, what


def test_under_custody_nothing_is_lost_while_plans_change():
    results = [run_messages(seed) for seed in range(SEEDS)]

    assert [each.violation for each in results] == [None] * SEEDS
    assert sum("planned frame" in each.fired for each in results) > SEEDS // 6


def test_a_tree_that_nobody_rescues_from_is_found(monkeypatch):
    monkeypatch.setattr(plane, "rescued", lambda frame, route, *others: route)

    invariants = {
        result.violation.invariant
        for seed in range(SEEDS)
        if (result := run("shortest-path", seed)).violation is not None
    }

    assert invariants == {"mixed_plans_reach_each_once", "probe_reaches_each_once"}


@pytest.mark.parametrize("strategy", ["shortest-path", "mixed"])
def test_only_who_collects_misses_what_is_kept_and_nobody_gets_anything_twice(strategy):
    results = [run(strategy, seed, edges=True) for seed in range(2 * SEEDS)]

    assert [each.violation for each in results] == [None] * 2 * SEEDS
    assert sum("kept" in each.fired for each in results) > SEEDS // 4


def test_under_custody_only_who_collects_misses_anything_while_plans_change():
    results = [run_messages(seed, edges=True) for seed in range(4 * SEEDS)]

    assert [each.violation for each in results] == [None] * 4 * SEEDS
    assert sum("excused kept" in each.fired for each in results) > SEEDS // 6


def violated(run_one, seeds):
    found = (run_one(seed, edges=True).violation for seed in range(seeds))
    return {each.invariant for each in found if each is not None}


def test_an_agent_that_keeps_what_somebody_else_wants_is_found(monkeypatch):
    def one_is_enough(self, filter_, state):
        return any(filter_ in self.collected_by(each) for each in state.brokers)

    monkeypatch.setattr(TopicRouting, "_only_collects", one_is_enough)

    assert "mixed_plans_reach_each_once" in violated(lambda *a, **b: run("mixed", *a, **b), 40)

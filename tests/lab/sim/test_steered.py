"""Federations whose agents follow plans drawn by chance, told to some and not to others."""

from federator.protocol.data import plane
from federator.protocol.routing.topic_routing import TopicRouting
from lab.sim import campaign
from lab.sim.campaign import draw
from lab.sim.story import Kind

SEEDS = 12


def run(strategy, seed, **more):
    drawn = draw(Kind.ROUTES, seed, nodes=8, strategy=strategy, steered=True, **more)
    return campaign.run(drawn)


def test_a_tree_that_nobody_rescues_from_is_found(monkeypatch):
    monkeypatch.setattr(plane, "rescued", lambda frame, route, *others: route)

    invariants = {
        result.violation.invariant
        for seed in range(SEEDS)
        if (result := run("shortest-path", seed)).violation is not None
    }

    assert invariants == {"mixed_plans_reach_each_once", "probe_reaches_each_once"}


def violated(run_one, seeds):
    found = (run_one(seed, edges=True).violation for seed in range(seeds))
    return {each.invariant for each in found if each is not None}


def test_an_agent_that_keeps_what_somebody_else_wants_is_found(monkeypatch):
    def one_is_enough(self, filter_, state):
        return any(filter_ in self.collected_by(each) for each in state.brokers)

    monkeypatch.setattr(TopicRouting, "_only_collects", one_is_enough)

    assert "mixed_plans_reach_each_once" in violated(lambda *a, **b: run("mixed", *a, **b), 40)

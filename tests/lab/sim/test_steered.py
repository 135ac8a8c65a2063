"""Federations whose agents follow plans drawn by chance, told to some and not to others."""

from federator.protocol.data.plane import DataPlane
from lab.sim.campaign import draw, run
from lab.sim.story import Kind

SEEDS = 12


def test_a_tree_that_nobody_rescues_from_is_found(monkeypatch):
    def route(self, frame, mask, seen, now):
        keys, sender, origin = frame.keys, frame.sender, frame.origin
        return self.forwarder.route_frame(keys, mask, sender=sender, origin=origin)

    monkeypatch.setattr(DataPlane, "_route", route)

    manner = {"nodes": 8, "strategy": "shortest-path", "steered": True}
    found = (run(draw(Kind.ROUTES, seed, **manner)).violation for seed in range(SEEDS))

    invariants = {each.invariant for each in found if each is not None}
    assert invariants == {"mixed_plans_reach_each_once", "probe_reaches_each_once"}

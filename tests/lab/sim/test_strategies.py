"""Both routings, and a federation on its way from one to the other, through the same stories.

Campaigns are in test_campaigns.py.
"""

import pytest

from federator.protocol.custody.origin import Origin
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.parameters import Strategy
from federator.protocol.routing.topic_routing import TopicRouting
from lab.sim.campaign import draw, run
from lab.sim.plan import MIXED
from lab.sim.story import Kind
from tests.lab.sim.violations import assert_caught

MUTANT_SEEDS_MAX = 200

STRAIGHT = Strategy.SHORTEST_PATH.value


def test_mixed_has_brokers_of_both_kinds():
    plans = [draw(Kind.ROUTES, seed, nodes=8, strategy=MIXED).plan for seed in range(20)]

    assert any(0 < len(plan.shortest) < 8 for plan in plans)
    assert {id for plan in plans for id in plan.shortest} == set(range(8))


def goes_by_the_last_parent(monkeypatch):
    """Some brokers break ties between equally good next hops in another way."""
    original = TopicRouting.on_core_moved

    def on_core_moved(self, core):
        route = self._announcements.routes.get(core)
        if route is None or (self._links.self_id + core) % 2:
            return original(self, core)
        parents, route.parents = route.parents, route.parents[::-1]
        steps = original(self, core)
        route.parents = parents
        return steps

    monkeypatch.setattr(TopicRouting, "on_core_moved", on_core_moved)


def forgets_no_destination(monkeypatch):
    """Records that are taken back stay."""
    original = TopicRouting.on_announced

    def on_announced(self, core, records, *, lost):
        announced = self._announcements.routes[core].announced.filters
        return original(self, core, [r for r in records if r in announced], lost=lost)

    monkeypatch.setattr(TopicRouting, "on_announced", on_announced)


def remembers_old_ways(monkeypatch):
    """Routes of topics are not looked up again when a destination moved."""
    monkeypatch.setattr(Forwarder, "_note", lambda self, beginning: None)


def tells_everybody_every_way(monkeypatch):
    """Copies go to all neighbours, each for all destinations."""
    original = Forwarder._label

    def label(self, found, destinations, tree=b""):
        keys, sends = original(self, found, destinations, tree)
        masks = [int.from_bytes(mask, "little") for _, mask in sends]
        every = sum(masks).to_bytes(len(sends[0][1]), "little") if sends else b""
        hops = {*self._by_way_of.values()}
        return keys, tuple((hop, every) for hop in sorted(hops)) if sends else ()

    monkeypatch.setattr(Forwarder, "_label", label)


@pytest.mark.parametrize(
    ("mutate", "invariants"),
    [
        (goes_by_the_last_parent, {"one_copy"}),
        (forgets_no_destination, {"converges", "triggered_updates"}),
        (remembers_old_ways, {"probe_reaches_each_once", "one_copy", "shortest_path"}),
        (tells_everybody_every_way, {"one_copy", "shortest_path"}),
    ],
)
def test_mutant_is_caught(monkeypatch, mutate, invariants):
    mutate(monkeypatch)

    seeds = range(MUTANT_SEEDS_MAX)
    drawn = (draw(Kind.ROUTES, seed, nodes=6 + seed % 8, strategy=STRAIGHT) for seed in seeds)
    assert_caught(map(run, drawn), invariants)


def test_tails_that_go_down_meshes_only_are_caught(monkeypatch):
    original = Origin.send_tails

    def send_tails(self, now_ms):
        label = self.forwarder._label
        self.forwarder._label = lambda found, ends, tree=b"": (b"", ())
        original(self, now_ms)
        self.forwarder._label = label

    monkeypatch.setattr(Origin, "send_tails", send_tails)

    drawn = (draw(Kind.MESSAGES, seed, strategy=STRAIGHT) for seed in range(MUTANT_SEEDS_MAX))
    assert_caught(map(run, drawn), {"owed", "arrives_in_the_calm"})

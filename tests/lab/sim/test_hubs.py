"""Stories with hubs and leaves: several agents beside one broker, which is the switch."""

from federator.protocol.leaves.bounded_cover import BoundedCover
from federator.protocol.leaves.switch import Switch, Told
from lab.sim.data import DataPath
from lab.sim.messages import story as stories
from lab.sim.messages.campaign import run_story
from lab.sim.messages.hubs import HubWorld
from tests.effort import seeds
from tests.lab.sim.violations import violations

SEEDS = seeds(20)
MUTANT_SEEDS_MAX = 60


def found_by(invariants):
    """Whether one of so many stories ends with a violation of one of ``invariants``."""
    told = map(stories.draw_hubs, range(MUTANT_SEEDS_MAX))
    ended = (run_story(story).violation for story in told)
    return any(each is not None and each.invariant in invariants for each in ended)


def test_everybody_gets_what_was_promised_through_hubs():
    results = [run_story(stories.draw_hubs(seed)) for seed in range(SEEDS)]

    assert not violations(results, "--hubs --messages")
    assert any("hub filter lingers" in each.fired for each in results)


def test_a_hub_that_does_not_tell_the_mesh_what_leaves_want_is_found(monkeypatch):
    real = Switch.on_leaf

    def silent(self, leaf, change, now_ms):
        return Told(leaves=real(self, leaf, change, now_ms).leaves)

    monkeypatch.setattr(Switch, "on_leaf", silent)

    assert found_by({"arrives_in_the_calm", "owed", "converges"})


def test_a_summary_that_misses_a_filter_is_found(monkeypatch):
    real = BoundedCover.update

    def narrow(self, added, removed):
        change = real(self, added, removed)
        if len(self.filters) == self._max:
            for filter_ in change.subscribe:
                if "+" in filter_ and not self.wants(filter_):
                    self._let_go(filter_)
        return change

    monkeypatch.setattr(BoundedCover, "update", narrow)
    monkeypatch.setattr(stories, "FILTERS_MAX", (3,))

    assert found_by({"arrives_in_the_calm", "owed", "converges"})


def test_a_port_that_hears_itself_is_found(monkeypatch):
    real = HubWorld._told

    def echo(self, hub, switch, told):
        real(self, hub, switch, told)
        for session in self.local[hub].sessions.values():
            session.no_local = False

    monkeypatch.setattr(HubWorld, "_told", echo)

    assert found_by({"once_per_subscriber", "not_back_home", "once_per_broker", "in_order"})


def test_a_hub_that_acknowledges_before_it_logs_is_found(monkeypatch):
    real = DataPath.read

    def forget(self, run):
        if self._agent.id not in self._world.ledger.relays:
            real(self, run)

    monkeypatch.setattr(DataPath, "read", forget)

    assert found_by({"logged_before_acknowledged"})

"""Hubs and leaves by the thousand, here by the dozen: the same story, and what it must find."""

import pytest
from click.testing import CliRunner

from federator.protocol.custody.destination import Destination
from federator.protocol.filters import CoverChange
from federator.protocol.leaves.switch import Switch
from lab.cli import sim_large
from lab.sim.large.plan import draw, room_for
from lab.sim.large.run import PUBLICATIONS, run
from lab.sim.wires import Wires
from tests.lab.sim.mutants import does_not_tell_the_mesh_what_leaves_want, hears_itself


def story(*, hubs=4, leaves=5, deaths=2, seed=0, room=None, areas=1):
    """How a small world of that kind fares."""
    room = room or room_for(leaves)
    large = draw(seed, hubs=hubs, leaves=leaves, filters_max=room, areas=areas)
    return run(large, deaths=deaths, say=lambda _: None)


def test_hubs_and_leaves_stand_survive_deaths_of_hubs_and_heal():
    outcome = story()

    assert outcome.violation == ""
    assert outcome.brokers == 24
    assert outcome.deaths == 2
    assert outcome.published > 2 * PUBLICATIONS
    assert 0 < outcome.healed_ms < 15_000


def test_a_leaf_says_and_hears_as_much_beside_a_larger_world():
    small = story(hubs=2, leaves=2, deaths=0, room=60)
    large = story(hubs=8, leaves=8, deaths=0, room=60)

    assert small.violation == large.violation == ""
    assert large.at_rest.leaf_messages == pytest.approx(small.at_rest.leaf_messages, rel=0.05)
    assert large.at_rest.leaf_bytes == pytest.approx(small.at_rest.leaf_bytes, rel=0.05)
    assert large.told <= 60 < large.held


def test_in_areas_a_hub_knows_less_and_all_stand_survive_deaths_and_heal():
    flat = story(hubs=12, leaves=3, deaths=0)
    areas = story(hubs=12, leaves=3, deaths=6, areas=3)

    assert flat.violation == areas.violation == ""
    assert areas.brokers == 3 + 12 + 36
    assert areas.held < flat.held
    assert areas.at_rest.leaf_bytes == pytest.approx(flat.at_rest.leaf_bytes, rel=0.05)
    assert areas.at_rest.hub_messages < flat.at_rest.hub_messages


def test_a_hub_that_does_not_tell_the_mesh_what_leaves_want_is_found(monkeypatch):
    does_not_tell_the_mesh_what_leaves_want(monkeypatch)

    assert "does not ask for" in story(deaths=0).violation


def test_a_leaf_that_is_not_told_of_others_is_found(monkeypatch):
    real = Switch.change

    def narrow(self, source, demand, now_ms):
        some = [f for f in demand.subscribe if source is not None or not f.endswith("1/#")]
        return real(self, source, CoverChange(tuple(some), demand.unsubscribe), now_ms)

    monkeypatch.setattr(Switch, "change", narrow)

    assert "is not told that somebody wants" in story(deaths=0, room=3_000).violation


def test_a_hub_that_forgets_since_when_its_sides_want_what_they_want_is_found(monkeypatch):
    monkeypatch.setattr(Destination, "save", lambda self, leaving=False: None)

    violations = [story(hubs=5, deaths=8, seed=seed).violation for seed in range(3)]

    assert any(each.startswith("heals") for each in violations)


def test_agents_beside_a_broker_that_hear_themselves_are_found(monkeypatch):
    hears_itself(monkeypatch)

    found = ("once_per_subscriber", "not_back_home", "once_per_broker", "in_order")
    assert any(name in story(deaths=0).violation for name in found)


def test_a_hub_whose_neighbours_do_not_dial_it_again_is_found(monkeypatch):
    real = Wires.dial

    def once(self, agent, dialler, after_ms=0):
        if not dialler.failures:
            real(self, agent, dialler, after_ms)

    monkeypatch.setattr(Wires, "dial", once)

    assert "does not reach" in story(hubs=3, leaves=1, deaths=3).violation


def test_the_command_prints_what_a_world_costs(monkeypatch):
    monkeypatch.setattr(sim_large, "WORLDS", ((2, 2), (3, 3)))

    ended = CliRunner().invoke(sim_large.command, ["--table", "--deaths", "1"])

    assert ended.exit_code == 0, ended.output
    assert "6 (2 x 2)" in ended.output
    assert "12 (3 x 3)" in ended.output
    assert "a leaf costs as much in all" in ended.output

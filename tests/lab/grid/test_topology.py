"""Grids and the meshes that the paper's rules give on them."""

import pytest

from federator.protocol.types import BrokerId
from lab.grid.scenario import PRESETS, RIBAS2022, SPOHN2021, default_scenario
from lab.grid.topology import Grid, Link, announcement_bound, announcement_flood, expected_mesh
from tests.lab.grid.ids import ids

PAPER = Grid(3, 3)


def test_a_grid_links_each_broker_to_the_ones_beside_above_and_below():
    assert Grid(2, 3, first_id=1).links == (
        Link(*ids(1, 2)),
        Link(*ids(1, 4)),
        Link(*ids(2, 3)),
        Link(*ids(2, 5)),
        Link(*ids(3, 6)),
        Link(*ids(4, 5)),
        Link(*ids(5, 6)),
    )
    assert Grid(1, 1).links == ()


def test_neighbours_are_those_of_the_links():
    assert PAPER.neighbours[BrokerId(4)] == (1, 3, 5, 7)
    assert PAPER.neighbours[BrokerId(6)] == (3, 7)


def test_hops_are_manhattan_distances():
    hops = PAPER.hops_from(BrokerId(6))

    for here in PAPER.ids:
        row, column = divmod(here, 3)
        assert hops[here] == (2 - row) + column


def test_the_papers_mesh_has_its_core_members_and_parents():
    mesh = expected_mesh(PAPER, ids(7, 2), redundancy=2)

    assert mesh.core == 2
    assert mesh.members == {1, 2, 4, 5, 7, 8}
    parents = {here: mesh.parents[here] for here in mesh.members - {BrokerId(2)}}
    assert parents == {7: (4, 8), 4: (1, 5), 8: (5,), 1: (2,), 5: (2,)}
    assert mesh.children(BrokerId(5)) == (4, 8)


def test_redundancy_one_keeps_the_parent_with_the_smallest_id():
    mesh = expected_mesh(PAPER, ids(2, 7), redundancy=1)

    assert mesh.parents[BrokerId(7)] == (4,)
    assert mesh.members == {1, 2, 4, 7}


@pytest.mark.parametrize("scenario", PRESETS.values(), ids=lambda scenario: scenario.name)
def test_the_rules_give_the_parents_that_the_source_prints(scenario):
    mesh = expected_mesh(scenario.grid, scenario.subscribers, redundancy=scenario.redundancy)

    assert {here: mesh.parents[here] for here in scenario.parents} == scenario.parents


def test_a_mesh_without_subscribers_is_refused():
    with pytest.raises(ValueError, match="subscriber"):
        expected_mesh(PAPER, (), redundancy=2)


@pytest.mark.parametrize(("side", "messages"), [(3, 16), (4, 33), (5, 56), (8, 161), (10, 261)])
def test_a_flood_takes_the_messages_computed_for_the_paper(side, messages):
    grid = Grid(side, side)

    assert announcement_flood(grid) == messages <= announcement_bound(grid)


def test_the_default_arrangement_on_three_by_three_is_the_papers():
    scenario = default_scenario(PAPER)

    assert scenario.subscribers == SPOHN2021.subscribers
    assert scenario.publisher == SPOHN2021.publisher


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (2, 2), (10, 10)])
def test_the_default_arrangement_fits_any_grid(shape):
    scenario = default_scenario(Grid(shape[0], shape[1], first_id=40))

    assert set(scenario.subscribers) <= set(scenario.grid.ids)


def test_the_evaluation_kits_ids_begin_at_one():
    assert RIBAS2022.grid.ids == (1, 2, 3, 4, 5, 6, 7, 8, 9)

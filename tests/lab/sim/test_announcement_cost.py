"""What announcing costs, counted publication by publication."""

import pytest

from lab.grid.topology import Grid, announcement_bound, announcement_flood
from tests.lab.sim.worlds import SendCounter, calm_grid, calm_world


def refreshes(side, core=0):
    """How often each of the core's later announcements is published on the grid."""
    world = calm_grid(side, {core: {"t"}}, watch=SendCounter)
    counter = world.part(SendCounter)
    world.run_until(3_000)
    counter.by_announcement.clear()
    world.run_until(18_000)
    return list(counter.by_announcement.values())


@pytest.mark.parametrize("side", range(3, 11))
def test_refreshes_cost_what_the_papers_flood_costs_at_most_two_publications_per_link(side):
    grid = Grid(side, side)

    counts = refreshes(side)

    assert len(counts) == 3
    assert set(counts) == {announcement_flood(grid)}
    assert max(counts) <= announcement_bound(grid) == 2 * len(grid.links)


def test_unequal_delays_never_cost_more_than_three_publications_per_link():
    side, counts = 10, []
    for delay_ms in (1, 40):
        world = calm_grid(side, {55: {"t"}}, watch=SendCounter, delay_ms=delay_ms)
        counter = world.part(SendCounter)
        for (owner, target), path in world.paths.items():
            path.delay_ms_min = path.delay_ms_max = 1 + (owner * 37 + target * 11) % delay_ms
        world.run_until(30_000)
        counts += counter.by_announcement.values()

    assert 0 < max(counts) <= 3 * 2 * side * (side - 1)


def publications_per_interval(filters):
    ring = [(0, 1), (1, 2), (2, 3), (0, 3)]
    world = calm_world(ring, {0: filters, 2: filters}, watch=SendCounter)
    counter = world.part(SendCounter)
    world.run_until(7_000)
    counter.by_kind.clear()
    world.run_until(12_000)
    return counter.by_kind


@pytest.mark.parametrize("count", [100, 10_000])
def test_an_interval_costs_the_same_with_one_filter_and_with_many(count):
    one = publications_per_interval({"t/0"})

    many = publications_per_interval({f"t/{n}" for n in range(count)})

    assert one["CoreAnn"] > 0
    assert one["MeshMembAnn"] > 0
    assert many == one

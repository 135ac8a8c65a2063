"""Spohn 2021, claim by claim, on the daemon's own protocol code."""

import random

import pytest

from federator.protocol.types import BrokerId
from lab.sim import topologies
from lab.sim.campaign import draw, run
from lab.sim.parts import Part
from lab.sim.story import Kind
from tests.lab.sim.worlds import (
    DELAY_MS,
    SendCounter,
    calm_grid,
    calm_world,
    members_of,
    next_hops,
    parents_in_mesh,
)

SUBSCRIBERS = {2: {"t"}, 7: {"t"}}


class Deliveries(Part):
    """When each broker published each publication."""

    def __init__(self):
        self.world = None
        self.at_ms = {}

    def delivered(self, agent, publication, topic):
        self.at_ms[publication, agent.id] = self.world.now_ms


def section_7():
    """The 3x3 grid of figure 3, ids by row, redundancy 2, 5 ms links (Table 1)."""
    deliveries = Deliveries()
    world = calm_grid(3, SUBSCRIBERS, watch=lambda _: deliveries, redundancy=2)
    deliveries.world = world
    world.run_until(12_000)
    return world, deliveries


# Section 3: federation of MQTT brokers.


def test_section_3_several_cores_converge_to_the_smallest_id():
    world = calm_grid(3, {id: {"t"} for id in (8, 5, 3, 7)})

    world.run_until(12_000)

    assert {agent.node.meshes.states["t"].core for agent in world.agents.values()} == {3}


def test_section_3_every_broker_learns_of_every_core_but_only_those_needed_are_members():
    world = calm_world(topologies.line(5), {1: {"t"}, 3: {"t"}})

    world.run_until(12_000)

    assert all(agent.node.meshes.states["t"].core == 1 for agent in world.agents.values())
    assert members_of(world, "t", 1) == {1, 2, 3}


@pytest.mark.parametrize("redundancy", [1, 2, 3])
def test_section_3_number_of_parents_is_the_redundancy_where_the_graph_allows_it(redundancy):
    three_ways = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)]
    world = calm_world(three_ways, {0: {"t"}, 4: {"t"}}, redundancy=redundancy)

    world.run_until(12_000)

    assert parents_in_mesh(world, "t", 0)[4] == set(range(1, 1 + redundancy))


def test_section_3_publisher_need_not_take_part_in_any_mesh():
    world = calm_world(topologies.line(4), {0: {"t"}, 1: {"t"}})
    world.run_until(12_000)

    number = world.publish(BrokerId(3), "t")[0]
    world.run_until(13_000)

    assert world.delivered[number] == {0: 1, 1: 1}
    assert 3 not in members_of(world, "t", 0)


# Section 4: the architecture.


def test_section_4_each_child_announces_its_membership_once_per_parent_and_core_announcement():
    world = calm_grid(3, SUBSCRIBERS, watch=SendCounter, redundancy=2)
    counter = world.part(SendCounter)
    world.run_until(12_000)
    parents = sum(map(len, parents_in_mesh(world, "t", 2).values()))
    counter.by_kind.clear()
    counter.by_announcement.clear()

    world.run_until(17_000)

    assert [core for core, _ in counter.by_announcement].count(2) == 1
    assert counter.by_kind["MeshMembAnn"] == parents == 7


def test_section_4_data_log_keeps_a_mesh_with_cycles_from_delivering_twice():
    world, _ = section_7()

    numbers = [world.publish(BrokerId(id), "t")[0] for id in world.plan.ids for _ in range(5)]
    world.run_until(13_000)

    for number in numbers:
        wanted = {2, 7} - {world.published[number].broker}
        assert world.delivered[number] == dict.fromkeys(wanted, 1)
    assert world.fired["duplicate_suppressed"] > 0


# Section 5: formal properties.


@pytest.mark.parametrize("name", topologies.NAMES)
def test_theorem_1_an_announcement_takes_at_most_two_publications_per_link(name):
    _, links = topologies.draw(name, 12, random.Random(5))
    world = calm_world(links, {0: {"t"}}, watch=SendCounter)
    counter = world.part(SendCounter)
    world.run_until(3_000)
    counter.by_announcement.clear()

    world.run_until(13_000)

    assert len(counter.by_announcement) == 2
    assert max(counter.by_announcement.values()) <= 2 * len(links)


@pytest.mark.parametrize("name", topologies.NAMES)
def test_theorem_2_the_mesh_converges_in_finite_time_without_deadlock(name):
    for seed in range(5):
        result = run(draw(Kind.ROUTES, seed, nodes=12, topology=name, faulty=False))

        assert result.violation is None
        assert result.converged_ms is not None


# Section 7: the evaluation scenario.


def test_section_7_core_is_2_and_the_connecting_members_are_1_4_5_and_8():
    world, _ = section_7()

    assert {agent.node.meshes.states["t"].core for agent in world.agents.values()} == {2}
    assert members_of(world, "t", 2) == {1, 2, 4, 5, 7, 8}


def test_section_7_figure_5_parents_and_children():
    world, _ = section_7()

    parents = {7: {4, 8}, 4: {1, 5}, 8: {5}, 1: {2}, 5: {2}}
    assert parents_in_mesh(world, "t", 2) == parents
    for id in (1, 2, 4, 5, 7, 8):
        children = {child for child, theirs in parents.items() if id in theirs}
        assert set(world.agents[BrokerId(id)].node.meshes.children_of(2, "t")) == children


def test_section_7_publisher_at_6_relays_to_one_broker_which_is_in_the_mesh():
    world, _ = section_7()

    assert next_hops(world, 6, "t") == {7}


def test_section_7_figure_6_node_7_is_one_hop_and_node_2_four_hops_from_the_publisher():
    world, deliveries = section_7()
    start_ms = world.now_ms

    number = world.publish(BrokerId(6), "t")[0]
    world.run_until(13_000)

    assert deliveries.at_ms == {
        (number, 7): start_ms + 1 * DELAY_MS,
        (number, 2): start_ms + 4 * DELAY_MS,
    }


def test_evaluation_kit_of_2022_has_the_parents_it_reports_around_core_3():
    world = calm_grid(3, {3: {"t"}, 8: {"t"}}, first_id=1, redundancy=2)

    world.run_until(12_000)

    found = {id: set(a.node.meshes.parents_of(3)) for id, a in world.agents.items() if id != 3}
    assert found == {
        1: {2},
        2: {3},
        4: {1, 5},
        5: {2, 6},
        6: {3},
        7: {4, 8},
        8: {5, 9},
        9: {6},
    }

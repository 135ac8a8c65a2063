"""Which neighbours become parents where links cost different amounts: docs/protocol.md 6.2."""

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.protocol.messages.control import CoreAnn, MeshMembAnn
from federator.protocol.parameters import Parameters
from federator.protocol.routing.core_route import CoreRoute, HeardCost
from federator.protocol.routing_table import table_of
from federator.protocol.types import Cost
from lab.sim.invariants import Invariants
from tests.lab.sim.worlds import calm_world
from tests.protocol.network import Network, network_with

DIAMOND = {(0, 1): 1, (0, 2): 2, (1, 3): 2, (2, 3): 2, (3, 4): 1}
"""3 has a way of 3 by 1, and one of 4 by 2, which is closer to 0 than 3 is. 4 has 3 alone."""


def test_the_second_parent_carries_on_at_once_when_the_first_is_cut_off():
    network = network_with(DIAMOND, 0, 3, costs=DIAMOND)
    before = len(network.sent)

    network.cut(1, 3)
    network.run(0)
    at_once = network.nodes[3].meshes.states["f"].route.next_hops
    network.run(1_000)

    assert at_once == (2,)
    joins = [m for *_, m in network.sent[before:] if isinstance(m, MeshMembAnn) and m.added]
    assert not joins, "2 knew all that 3 wants"


def chosen(ways, *, before=(), redundancy=2):
    """The parents, where the way by each neighbour costs so much, all of it for the link."""
    route = CoreRoute(core=0, priority=0, parents=before)
    route.offers = {n: HeardCost(route.number, Cost(0), in_mesh=False) for n in ways}
    route.choose(ways.get, redundancy=redundancy, slack_percent=100)
    return route.parents


def test_the_nearest_come_first_and_ties_by_their_ids():
    assert chosen({9: 4, 7: 4, 5: 5}, redundancy=3) == (7, 9, 5)


@pytest.mark.parametrize(("third", "parents"), [(8, (1, 2)), (7, (1, 2)), (5, (1, 3)), (4, (1, 3))])
def test_a_parent_gives_way_only_to_one_whose_way_is_much_better(third, parents):
    assert chosen({1: 4, 2: 7, 3: third}, before=(1, 2)) == parents
    assert third >= 7 or chosen({1: 4, 2: 7, 3: third}) == (1, 3), "with none before, the best"


def test_a_parent_stays_one_when_its_way_costs_a_little_more_than_a_new_ones_may():
    assert [chosen({1: 4, 2: dear}) for dear in (8, 9)] == [(1, 2), (1,)]
    assert [chosen({1: 4, 2: dear}, before=(1, 2)) for dear in (12, 13)] == [(1, 2), (1,)]


@st.composite
def graphs(draw):
    """A connected graph, and what its links cost: all the same, much the same, or anything."""
    size = draw(st.integers(2, 9))
    edges = {(draw(st.integers(0, n - 1)), n) for n in range(1, size)}
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
    drawn = draw(st.lists(pairs, max_size=2 * size))
    edges |= {(min(pair), max(pair)) for pair in drawn if pair[0] != pair[1]}
    highest = draw(st.sampled_from([1, 3, 20]))
    return {edge: draw(st.integers(1, highest)) for edge in sorted(edges)}


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(1, 4), st.sampled_from([0, 50, 100, 1_000]))
def test_every_member_has_as_many_parents_as_the_graph_allows(costs, redundancy, percent):
    options = {"redundancy": redundancy, "parent_slack_percent": percent}
    everybody = {node: {"f"} for edge in costs for node in edge}
    world = calm_world(costs, everybody, watch=Invariants, delay_ms=1, costs=costs, **options)

    world.run_until(Parameters().core_ann_interval_ms + 2_000)

    graph = nx.Graph()
    graph.add_weighted_edges_from((a, b, cost) for (a, b), cost in costs.items())
    far = nx.single_source_dijkstra_path_length(graph, 0)
    ways = nx.DiGraph()
    for node in set(graph) - {0}:
        parents = world.agents[node].node.meshes.parents_of(0)
        ways.add_edges_from((node, parent) for parent in parents)
        more = {n: far[n] + graph[node][n]["weight"] - far[node] for n in graph[node]}
        closer = {n for n in more if far[n] < far[node]}
        nearest = sorted(n for n in closer if more[n] == 0)[:redundancy]
        within = {n for n in closer if 100 * more[n] <= percent * far[node]}

        assert list(parents[: len(nearest)]) == nearest
        assert set(parents) <= closer
        assert min(redundancy, len(within)) <= len(parents) <= redundancy
        assert all(100 * more[n] <= 2 * percent * far[node] for n in parents)
    assert nx.is_directed_acyclic_graph(ways)


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_who_has_a_second_way_knows_a_backup(costs):
    size = 1 + max(node for edge in costs for node in edge)
    options = {"delay_ms": 1, "costs": costs, "shortest": range(size)}
    world = calm_world(costs, {0: {"f"}}, **options)
    world.run_until(Parameters().core_ann_interval_ms + 2_000)

    graph = nx.Graph()
    graph.add_weighted_edges_from((a, b, cost) for (a, b), cost in costs.items())
    far = dict(nx.all_pairs_dijkstra_path_length(graph))
    for node in set(graph) - {0}:
        (row,) = table_of(world.agents[node].node, "f")
        others = set(graph[node]) - {row.way.next_hop}
        # RFC 5286, inequality 1: the neighbour's way does not lead back through us.
        free = {n for n in others if far[n][0] < far[n][node] + far[node][0]}

        assert row.way.weight == far[node][0]
        if free:
            least = min(far[n][0] + graph[node][n]["weight"] for n in free)
            assert row.backup is not None
            assert row.backup.weight <= least


def test_a_way_that_was_told_too_dear_at_first_is_told_again():
    # 3 has each number by 5 long before the cheap copy by 1 comes, and tells the dear way first.
    costs = {(0, 1): 1, (1, 3): 1, (0, 5): 4, (3, 5): 4}
    delay_ms = {(0, 1): 60, (1, 3): 60, (0, 5): 1, (3, 5): 1}
    impatient = Parameters(parent_settle_ms=0)
    network = Network(costs, costs=costs, delay_ms=delay_ms, parameters=impatient)
    network.run(2_000)
    network.subscribe(0, "f")
    network.run(3 * Parameters().core_ann_interval_ms + 1_000)

    told = [m.cost for _, s, r, m in network.sent if (s, r) == (3, 5) and isinstance(m, CoreAnn)]
    assert told[-2:] == [8, 2], "dearer than 5 is, then closer"
    assert network.nodes[5].meshes.parents_of(0) == (0, 3)

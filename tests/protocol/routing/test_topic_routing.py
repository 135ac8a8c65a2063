"""Shortest-path routing: who is a destination of what, and whether publications go straight there.

The clever routing meets a textbook Dijkstra on random graphs.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.protocol.effects import FilterRoute
from federator.protocol.parameters import Parameters, Strategy
from lab.sim.convergence import complaints, costs_from
from lab.sim.invariants import Invariants
from tests.lab.sim.worlds import calm_world
from tests.protocol.network import Network

STRAIGHT = Parameters(strategy=Strategy.SHORTEST_PATH)
LINE = [(1, 2), (2, 3), (3, 4)]


def route(network, node, filter_="f"):
    return network.routes.get((node, filter_))


def to(*brokers, local=False):
    return FilterRoute(local=local, wanted=bool(brokers), next_hops=(), destinations=brokers)


def test_the_first_filter_that_contains_a_subscription_says_how_it_is_routed():
    each = (("alarms/slow/#", Strategy.MESH), ("alarms/#", Strategy.SHORTEST_PATH))
    network = Network(LINE, parameters=Parameters(strategies=each))
    for filter_ in ("alarms/+", "alarms/slow/x", "else", "$fed/inbox/4"):
        network.subscribe(4, filter_)
    network.run(1_000)

    assert network.nodes[1].topic_routing.states.keys() == {"alarms/+"}
    assert network.nodes[1].meshes.states.keys() == {"alarms/slow/x", "else", "$fed/inbox/4"}


def test_a_filter_wanted_in_both_ways_has_one_route_for_both():
    network = Network(LINE)
    network.nodes[4].topic_routing._parameters = STRAIGHT
    network.subscribe(1, "f")
    network.subscribe(4, "f")
    network.run(1_000)

    both = FilterRoute(local=False, wanted=True, next_hops=(1,), destinations=(4,))
    assert route(network, 2) == both
    assert route(network, 1) == FilterRoute(
        local=True, wanted=True, next_hops=(), destinations=(4,)
    )

    network.unsubscribe(1, "f")
    network.run(3_000)

    assert route(network, 2) == to(4)
    assert network.lost == []


@st.composite
def federations(draw):
    """A connected graph with costs, who wants what, and how each broker asks."""
    size = draw(st.integers(2, 7))
    edges = {(draw(st.integers(0, n - 1)), n) for n in range(1, size)}
    pairs = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
    edges |= {(min(pair), max(pair)) for pair in draw(st.lists(pairs)) if pair[0] != pair[1]}
    costs = {edge: draw(st.integers(1, 3)) for edge in sorted(edges)}
    wanted = st.sets(st.sampled_from(["a/b", "a/+", "#"]))
    filters = {id: draw(wanted) for id in range(size)}
    all_straight = draw(st.booleans())
    straight = range(size) if all_straight else draw(st.sets(st.sampled_from(range(size))))
    return costs, filters, frozenset(straight), size


@settings(max_examples=60, deadline=None)
@given(federations())
def test_each_destination_gets_one_copy_over_a_shortest_path_on_any_graph(federation):
    costs, filters, straight, size = federation
    world = calm_world(costs, filters, watch=Invariants, delay_ms=1, shortest=straight, costs=costs)
    watcher = world.part(Invariants)
    world.run_until(3_000)
    assert not list(complaints(world, shortest=True))
    if len(straight) == size:
        watcher.demand_shortest({id: costs_from(world, world.agents, id) for id in world.agents})

    numbers = [world.publish(id, "a/b")[0] for id in world.agents]
    world.run_until(4_000)

    interested = {id for id, wants in filters.items() if wants}
    for number in numbers:
        assert world.delivered[number] == dict.fromkeys(
            interested - {world.published[number].broker}, 1
        ), "each once, and nobody else"

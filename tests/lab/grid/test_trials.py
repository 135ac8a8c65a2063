"""Strategies side by side: what the graph gives, and what is said of the figures."""

from xml.etree import ElementTree

import pytest

from federator.protocol.parameters import Strategy
from lab.cli.grid.plan import Asked, trial_of
from lab.cli.grid.strategies import (
    as_json,
    bars,
    completion_chart,
    completion_faults,
    completion_json,
    faults,
    settings,
)
from lab.grid.clients import STAMP_BYTES, Arrivals, Tally, stamped
from lab.grid.scenario import SPOHN2021
from lab.grid.topology import Graph, Grid, Link, destinations_fault
from lab.grid.trial import (
    STEP,
    TESTBED,
    WITH,
    WITHOUT,
    Delivery,
    Setting,
    State,
    TrialOutcome,
    completion_of,
    knee,
    path_of,
)
from tests.lab.grid.ids import ids

MESH = Setting("mesh, redundancy 1", Strategy.MESH, 1)
STRAIGHT = Setting("shortest path", Strategy.SHORTEST_PATH, 2)


def arrivals(delay_ms, *, received=100, completed_ms=()):
    each = (delay_ms, 0.1, delay_ms, delay_ms, delay_ms, delay_ms)
    return Arrivals(100, received, 0, 0, 0, *each, completed_ms=completed_ms)


def outcome(setting, *pairs, data=800):
    return TrialOutcome(
        setting=setting,
        pairs=pairs,
        publications=100,
        data_messages=data,
        control_messages=50,
        seconds=10.0,
        settling_messages=500,
        state=State(1, 1, 1, 0),
        faults=(),
    )


def pair(subscriber, delay_ms, *, hops=2, **options):
    (here,) = ids(subscriber)
    return Delivery(ids(6)[0], here, hops, 5.0 * hops, arrivals(delay_ms, **options))


def test_paths_are_the_cheapest_and_of_these_the_one_by_the_smallest_brokers():
    assert Grid(3, 3).path(*ids(0, 8), {}) == ids(0, 1, 2, 5, 8)
    assert TESTBED.path(*ids(6, 1), {}) == ids(6, 4, 2, 1)
    assert TESTBED.path(*ids(4, 4), {}) == ids(4)
    costly = {Link(*ids(1, 2)): 9}
    assert Grid(3, 3).path(*ids(0, 2), costly) == ids(0, 1, 4, 5, 2)


def test_a_graph_has_the_brokers_of_its_links_and_knows_its_neighbours():
    graph = Graph(((6, 7), (4, 7)))

    assert graph.ids == ids(4, 6, 7)
    assert graph.links == (Link(*ids(4, 7)), Link(*ids(6, 7)))
    assert graph.neighbours[ids(7)[0]] == ids(4, 6)
    assert graph.hops_from(ids(4)[0]) == {4: 0, 7: 1, 6: 2}


def test_the_testbed_has_the_papers_two_paths():
    assert path_of(WITHOUT) == ids(6, 7, 4, 3, 2, 1)
    assert path_of(WITH) == ids(6, 4, 2, 1)


def statuses(**wrong):
    """What the agents of a line of three say when 2 has a subscriber."""
    told = {0: "1-2/t", 1: "2/t", 2: "2/t"} | {int(k[1:]): v for k, v in wrong.items()}
    return {
        here: {"destinations": [{"filter": "t", "to": 2, "path/topic": path}]}
        for here, path in told.items()
    }


@pytest.mark.parametrize(
    ("said", "fault"), [({}, None), ({"b1": "0/t"}, "broker 1 has"), ({"b2": None}, "broker 2 has")]
)
def test_routing_tables_are_held_against_the_graph(said, fault):
    found = destinations_fault(statuses(**said), "t", Grid(1, 3), ids(2), {})

    assert found is None if fault is None else found.startswith(fault)


def test_both_strategies_are_the_leanest_mesh_the_given_one_and_shortest_paths():
    assert [each.name for each in settings("both", 2)] == [
        "mesh, redundancy 1",
        "mesh, redundancy 2",
        "shortest path",
    ]
    assert [each.strategy for each in settings("shortest-path", 2)] == [Strategy.SHORTEST_PATH]
    assert [each.redundancy for each in settings("mesh", 1)] == [1]


def test_all_pairs_of_a_scenario_are_everybody_with_everybody():
    alone, everybody = (
        trial_of(Asked(preset="spohn2021", all_pairs=each), {}).arrangement
        for each in (False, True)
    )

    assert (alone.subscribers, alone.publishers) == (ids(2, 7), ids(6))
    assert everybody.subscribers == everybody.publishers == SPOHN2021.grid.ids


@pytest.mark.parametrize(
    ("delay_ms", "data", "kept"), [(13.0, 800, [True, True]), (13.1, 801, [False, False])]
)
def test_shortest_path_is_held_to_the_floor_and_to_the_leanest_mesh(delay_ms, data, kept):
    both = [outcome(MESH, pair(1, 20.0)), outcome(STRAIGHT, pair(1, delay_ms), data=data)]

    assert [met for _, met in bars(both)] == kept
    assert as_json(both)["ok"] is all(kept)
    assert len(faults(both)) == kept.count(False)


def completed(setting, per_step_ms):
    times = tuple(per_step_ms * (n + 1) for n in range(3))
    pairs = [pair(broker, 5.0, completed_ms=times) for broker in path_of(setting)]
    return outcome(setting, *pairs)


def test_completion_times_are_told_by_size_and_drawn():
    both = [completed(WITHOUT, 3_000.0), completed(WITH, 2_000.0)]

    told = completion_json(both)
    picture = ElementTree.fromstring(completion_chart(both))  # our own

    assert told["ok"]
    assert told["settings"][1]["completed_ms"]["consumer"] == {
        STEP: 2_000.0,
        2 * STEP: 4_000.0,
        3 * STEP: 6_000.0,
    }
    lines = [each for each in picture.iter() if each.tag.endswith("polyline")]
    assert len(lines) == 6


def test_the_edge_router_is_node_6_by_which_data_comes_in():
    pairs = [pair(broker, 5.0, completed_ms=(float(broker),)) for broker in path_of(WITH)]

    assert completion_of(outcome(WITH, *pairs), STEP).edge_router == {STEP: 6.0}


@pytest.mark.parametrize(
    ("took", "at"), [((1, 1, 1, 1), None), ((1, 1, 3, 1), None), ((1, 1, 2, 3), 2 * STEP)]
)
def test_a_knee_is_where_times_grow_faster_and_stay_so(took, at):
    times = {STEP * (n + 1): float(sum(took[: n + 1])) for n in range(len(took))}

    assert knee(times) == at


def test_a_shortest_path_that_is_not_faster_somewhere_is_a_fault():
    slow = [completed(WITHOUT, 3_000.0), completed(WITH, 3_000.0)]

    assert completion_faults(slow) == ["the shortest path is not faster at every size"]


def test_a_tally_notes_when_each_step_is_complete():
    tally = Tally(1, 5, payload_bytes=STAMP_BYTES, step=2)

    for number in range(5):
        sent = stamped(1, number, 1_000_000 * number, payload_bytes=STAMP_BYTES)
        tally.arrived(sent, 1_000_000 * (number + 3))

    assert tally.arrivals(5).completed_ms == (4.0, 6.0)

"""Chen 2020, 3.2, on the daemon's own code.

The example graph of figure 3 with consumer A; nodes A to I are brokers 1 to 9 (there is no H).
"""

import pytest

from federator.protocol.routing_table import table_of
from federator.protocol.types import BrokerId
from lab.sim.convergence import complaints, costs_from
from lab.sim.invariants import Invariants
from tests.lab.sim.worlds import calm_world

EDGES = ("AB", "AD", "AE", "BC", "EF", "CI", "FG", "GI")
NODES = "ABCDEFGI"

TABLES = {  # node: (next node, path and topic, weight), tables 2 to 9
    "A": (None, "A/top", 0),  # the paper writes 0/top: there is no path yet
    "B": ("A", "A/top", 1),
    "D": ("A", "A/top", 1),
    "E": ("A", "A/top", 1),
    "C": ("B", "BA/top", 2),
    "F": ("E", "EA/top", 2),
    "G": ("F", "FEA/top", 3),
    "I": ("C", "CBA/top", 3),
}
REJECTED = {"I": ("G", "GFEA/top", 4)}  # table 10, kept as a backup


def number(letter):
    return BrokerId(ord(letter) - ord("A") + 1)


def letter(id):
    return chr(ord("A") + id - 1)


def example(*, delays_ms=None, **options):
    pairs = [tuple(map(number, edge)) for edge in EDGES]
    world = calm_world(
        pairs,
        {number("A"): {"top"}},
        watch=Invariants,
        shortest=map(number, NODES),
        delays_ms=delays_ms,
        **options,
    )
    watcher = world.part(Invariants)
    world.run_until(12_000)
    return world, watcher


def told(way):
    """A way as the paper's tables print it."""
    if way is None:
        return None
    return (
        None if way.next_hop is None else letter(way.next_hop),
        "".join(map(letter, way.path)) + "/top",
        way.weight,
    )


def rows(world):
    return {node: table_of(world.agents[number(node)].node, "top") for node in NODES}


@pytest.mark.parametrize("node", NODES)
def test_tables_2_to_9_path_and_weight_of_every_node(node):
    world, _ = example()

    (row,) = rows(world)[node]

    assert told(row.way) == TABLES[node]


def test_table_10_the_longer_way_of_node_i_is_not_taken_but_kept_as_a_backup():
    world, _ = example()

    found = {node: told(row.backup) for node, (row,) in rows(world).items()}

    assert found == {**dict.fromkeys(NODES), "G": ("I", "ICBA/top", 4), **REJECTED}


def test_the_backup_takes_over_when_the_way_is_cut():
    world, _ = example()

    world.wires.cut(world.paths[number("C"), number("I")])
    world.wires.cut(world.paths[number("I"), number("C")])
    world.run_until(14_000)

    (row,) = rows(world)["I"]
    assert told(row.way) == REJECTED["I"]
    assert row.backup is None


def procedure_tbrg(*, last_in_first_out):
    """Algorithm 2 as printed, but for line 9, which would end it at once (docs/protocol.md 14)."""
    weights, waiting = {"A": 0}, ["A"]
    while waiting:
        node = waiting.pop(-1 if last_in_first_out else 0)
        for edge in EDGES:
            other = edge.replace(node, "")
            if node in edge and other not in weights:
                weights[other] = weights[node] + 1
                waiting.append(other)
    return weights


def test_algorithm_2_taken_last_in_first_out_misses_the_shortest_paths_and_we_do_not():
    world, _ = example()
    ours = {node: row.way.weight for node, (row,) in rows(world).items()}

    misled = procedure_tbrg(last_in_first_out=True)

    assert (misled["I"], misled["C"]) == (4, 5)
    assert ours == procedure_tbrg(last_in_first_out=False) != misled


@pytest.mark.parametrize("late", ["AB", "BC", "CI"])
def test_who_hears_of_the_long_way_first_takes_the_short_one_when_it_comes(late):
    """As last in, first out would, the request goes round by F, G and I first."""
    world, _ = example(delays_ms={tuple(map(number, late)): 100})

    assert {node: told(row.way) for node, (row,) in rows(world).items()} == TABLES


def test_publications_take_the_paths_of_the_tables():
    world, watcher = example()
    assert not list(complaints(world, shortest=True))
    watcher.demand_shortest({id: costs_from(world, world.agents, id) for id in world.agents})

    published = {node: world.publish(number(node), "top")[0] for node in NODES if node != "A"}
    world.run_until(13_000)

    for node, at in published.items():
        assert world.delivered[at] == {number("A"): 1}, node


def test_a_request_reaches_every_node_once_per_link_end_at_most_twice():
    """Procedure TBRG subscribes from each node to its neighbours: 2l requests at most."""
    _, watcher = example()

    floods = {key: flood.sends for key, flood in watcher.floods.items() if key[0] == number("A")}

    assert floods
    assert max(floods.values()) <= 2 * len(EDGES)

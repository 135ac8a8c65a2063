"""What several agents say becomes one picture, in four forms."""

import json
import re
from typing import Any

import pytest

from federator.cli.observe.drawing import DRAWINGS, merge


def status(id: int, links: list[tuple[int, str]], **more: Any) -> dict[str, Any]:
    """The parts of ``/status`` that a picture needs."""
    told = [{"neighbour": n, "state": state, "cost": 1, "rtt_ms": 1.5} for n, state in links]
    return {"id": id, "ready": True, "broker": {"url": f"mqtt://b{id}"}, "links": told, **more}


def mesh(core: int, parents: list[int], children: list[int], name: str = "a/#") -> dict[str, Any]:
    return {"filter": name, "core": core, "member": True, "parents": parents, "children": children}


def test_a_link_told_by_both_ends_is_one_link():
    picture = merge([status(1, [(2, "up")]), status(2, [(1, "up"), (3, "up")])])

    assert sorted(picture.links) == [(1, 2), (2, 3)]
    assert {id: b.asked for id, b in picture.brokers.items()} == {1: True, 2: True, 3: False}


@pytest.mark.parametrize(("one", "other"), [("up", "down"), ("down", "up")])
def test_a_link_is_up_only_when_nobody_says_otherwise(one, other):
    picture = merge([status(1, [(2, one)]), status(2, [(1, other)])])

    assert picture.links[1, 2].state == "down"


def test_a_neighbour_that_was_never_reached_is_no_broker():
    told = status(1, [])
    told["links"] = [{"neighbour": None, "state": "connecting", "address": "mqtt://x"}]

    assert sorted(merge([told]).brokers) == [1]


def test_the_tree_of_a_core_holds_every_agents_parents():
    cores = {2: [1], 3: [1, 2]}
    picture = merge(
        [status(1, [], own_core={"filters": 4})]
        + [
            status(
                id, [], cores=[{"core": 1, "parents": parents, "filters": 4, "in_mesh": id == 2}]
            )
            for id, parents in cores.items()
        ]
    )

    assert picture.trees[1].parents == cores
    assert picture.trees[1].members == [2]
    assert picture.brokers[1].core_of == 4


def test_one_filter_shows_its_mesh_only_with_children_of_agents_that_were_not_asked():
    told = status(2, [], meshes=[mesh(1, [1], [5, 4]), mesh(2, [], [3], "other")])

    picture = merge([told], "a/#")

    assert picture.trees[1].parents == {2: [1], 5: [2], 4: [2]}
    assert sorted(picture.trees) == [1]
    assert sorted(picture.brokers) == [1, 2, 4, 5]


def test_one_filter_shows_the_ways_to_each_of_its_destinations():
    ways = [
        {"filter": "a/#", "to": 3, "next_hop": 3},
        {"filter": "a/#", "to": 2, "next_hop": None},
        {"filter": "b", "to": 1, "next_hop": 1},
    ]
    picture = merge([status(2, [], destinations=ways)], "a/#")

    assert {to: tree.parents for to, tree in picture.trees.items()} == {3: {2: [3]}, 2: {}}
    assert picture.trees[2].members == [2]


@pytest.fixture
def picture():
    hostile = 'a"];\\#'
    return merge(
        [
            status(1, [(2, "up")], meshes=[mesh(1, [], [2], hostile)]),
            status(2, [(1, "up"), (3, "down")], meshes=[mesh(1, [1], [], hostile)]),
        ],
        hostile,
    )


def test_text_names_brokers_links_core_and_parents(picture):
    text = DRAWINGS["text"](picture)

    assert "brokers: 3" in text
    assert re.search(r"1 -- 2  up +cost 1  rtt 1.5 ms", text)
    assert "core 1, members 1 2" in text
    assert "  2 -> 1" in text


def test_text_says_when_there_is_no_such_mesh():
    assert "no mesh of 'x'" in DRAWINGS["text"](merge([status(1, [])], "x"))


def test_dot_quotes_what_others_wrote(picture):
    lines = DRAWINGS["dot"](picture).splitlines()

    assert lines[0] == "digraph federation {"
    assert lines[-1] == "}"
    assert "  1 [shape=doublecircle];" in lines
    assert "  2 -> 3 [dir=none, color=gray, style=dashed];" in lines
    assert '  2 -> 1 [label="1"];' in lines
    assert '  label="a\\"];\\\\#";' in lines


def test_mermaid_draws_links_and_parents(picture):
    lines = DRAWINGS["mermaid"](picture).splitlines()

    assert lines == [
        "graph LR",
        "  b1((1))",
        "  b2[2]",
        "  b3[3]",
        "  b1 --- b2",
        "  b2 -.- b3",
        "  b2 -->|1| b1",
    ]


def test_json_holds_the_same(picture):
    told = json.loads(DRAWINGS["json"](picture))

    assert [broker["id"] for broker in told["brokers"]] == [1, 2, 3]
    assert told["trees"] == [{"core": 1, "parents": {"2": [1]}, "members": [1, 2]}]

"""``federator-lab paper codecs-solve``: an operator's own tree, and how a bad one is refused."""

import json

import pytest
from click.testing import CliRunner

from federator.errors import InstanceError
from lab.cli.paper.codecs_solve import command
from lab.papers.codecs import tree_file
from lab.papers.codecs.example import LOST, PARENTS
from lab.papers.codecs.loss import Loss, lost_at_most

NODES = [
    {"name": "hall", "parent": "mast", "lost": 2},
    {"name": "hub"},
    {"name": "mast", "parent": "hub", "plr": 0.02, "abl": 2},
]


def solve(tmp_path, *options, **file):
    path = tmp_path / "tree.json"
    path.write_text(json.dumps({"version": 1, **file}))
    return CliRunner().invoke(command, [str(path), *options], catch_exceptions=False)


def test_the_papers_own_tree_given_as_a_file_costs_what_the_figure_says(tmp_path):
    nodes = [
        {"name": f"n{i}", **({"parent": f"n{parent}", "lost": lost} if i else {})}
        for i, (parent, lost) in enumerate(zip(PARENTS, LOST, strict=True))
    ]

    by_paper = json.loads(solve(tmp_path, "--json", nodes=nodes, charge="paper").output)
    by_load = json.loads(solve(tmp_path, "--json", nodes=nodes).output)

    assert (by_paper["cost"], by_load["cost"]) == (25, 41)
    assert [n["adds"] for n in by_paper["nodes"] if n["adds"]] == [7, 2]


def test_brokers_are_told_by_name_in_whatever_order_they_stand(tmp_path):
    told = solve(tmp_path, nodes=NODES)

    lost = lost_at_most(Loss(0.02, 2), share=0.99)
    rows = [line.split() for line in told.output.splitlines()]
    assert ["hub", "0", "yes", str(lost), str(lost)] in rows
    assert ["mast", str(lost), "yes", "2", "2"] in rows
    assert ["hall", "2", "no", "0", "0"] in rows


@pytest.mark.parametrize(
    ("nodes", "complaint"),
    [
        ([], "Expected `array` of length >= 1"),
        ([{"name": "a", "parent": "b", "lost": 1}], "a: parent: 'b': the name of a node wanted"),
        ([{"name": "a", "lost": 1}], "a: 1 of lost and plr: no loss without a parent wanted"),
        ([*NODES, {"name": "x", "parent": "hub"}], "x: 0 of lost and plr: either lost or plr"),
        ([*NODES, {"name": "hub"}], "nodes: two of one name"),
        ([{"name": "a", "parent": "a", "lost": 1}], "nodes without a way from a root"),
        ([NODES[1], {"name": "x", "parent": "hub", "plr": 1.5}], "x: plr 1.5, abl 1: a rate of 0"),
        ([NODES[1], {"name": "x", "parent": "hub", "lost": 999}], "Expected `int` <= 239"),
    ],
)
def test_a_bad_tree_is_told_in_one_line(nodes, complaint):
    with pytest.raises(InstanceError) as refused:
        tree_file.decode(json.dumps({"version": 1, "nodes": nodes}).encode())

    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)

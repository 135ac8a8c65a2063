"""``federator-lab paper``: methods side by side, and what figures are drawn from."""

import json
import xml.etree.ElementTree as ET

import pytest

from federator.errors import ConfigError
from lab import cli
from lab.cli.paper.place import read_table
from lab.frame.line_chart import line_chart
from lab.papers.flow.comparison import METHODS


def ended(arguments):
    with pytest.raises(SystemExit) as raised:
        cli.main(["paper", *map(str, arguments)])
    return raised.value.code


def test_every_method_of_the_paper_solves(capsys):
    chosen = [word for name in METHODS for word in ("--method", name)]
    arguments = ["--paper", "--seeds", "1", "--size", "case2", "--json", *chosen]

    assert ended(["compare", *arguments]) == 0

    runs = [json.loads(line) for line in capsys.readouterr().out.splitlines()][: len(METHODS)]
    assert [run["method"] for run in runs] == list(METHODS)
    assert all(run["cost"] > 0 for run in runs)


def test_compare_wants_instances_or_the_papers(capsys):
    assert ended(["compare"]) == 64

    assert capsys.readouterr().err.startswith("federator-lab: usage: either INSTANCES or --paper")


def test_compare_shows_the_papers_columns(capsys):
    arguments = ["--paper", "--seeds", "2", "--size", "tinyInstance", "--size", "res0"]

    assert ended(["compare", *arguments]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert "paper: time s" in lines[0]
    assert len(lines) == 1 + 2 * 5
    exact = [line.split() for line in lines if " exact " in line]
    assert [line[7:9] for line in exact] == [["2/2", "2/2"], ["2/2", "2/2"]]


@pytest.mark.full
def test_a_study_tells_how_many_worlds_came_near_the_centralised_answer(capsys):
    arguments = ["distributed", "--first-seed", "2", "--seeds", "1", "--rounds", "20"]

    assert ended(["study", *arguments]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["seed", "central"]
    assert lines[1].split()[0] == "2"
    assert lines[2].startswith("within 5%: ")
    assert " of 1; median " in lines[2]


def test_a_table_without_every_figure_is_refused(tmp_path):
    table = tmp_path / "part.csv"
    table.write_text("figure,series,x,seed,value\n8,lp,0.5,0,1.0\n")

    with pytest.raises(ConfigError, match="no rows for figures"):
        read_table(table)


def test_a_chart_is_xml_with_a_line_per_curve_inside_its_frame():
    curves = {"a < b": {0.0: 1.0, 1.0: 3.0}, "flat": {0.0: 0.0, 1.0: 0.0}}

    root = ET.fromstring(line_chart("t & t", "x", "y", curves))

    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2
    for line in lines:
        for point in line.get("points").split():
            x, y = map(float, point.split(","))
            assert 90 <= x <= 490
            assert 40 <= y <= 350
    assert "a < b" in [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]

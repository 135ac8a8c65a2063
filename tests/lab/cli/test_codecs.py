"""``federator-lab paper codecs``: what it prints and writes, and how it refuses."""

import csv
import xml.etree.ElementTree as ET

import pytest
from click.testing import CliRunner

from federator.errors import ConfigError
from lab.cli.paper.codecs import command

SVG = "{http://www.w3.org/2000/svg}"


def test_figure_2_is_told_with_what_is_best():
    told = CliRunner().invoke(command, ["2"])

    assert told.exit_code == 0
    rows = [line.split() for line in told.output.splitlines()]
    assert ["[31]", "3", "6", "1", "4", "35", "41", "3"] in rows
    assert ["improved", "4", "5", "0", "3", "31", "44", "2"] in rows
    assert ["best", "by", "paper", "cost", "7", "2", "0", "0", "25", "59", "1"] in rows


def test_a_figure_is_printed_drawn_and_written(tmp_path):
    told = CliRunner().invoke(
        command, ["8", "--seeds", "3", "--nodes-max", "40", "--out", str(tmp_path / "new")]
    )

    assert told.exit_code == 0, told.output
    assert "Figure 8. Overhead, packets per link / 16" in told.output
    with (tmp_path / "new" / "figures.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len([row for row in rows if row["figure"] == "8"]) == 4 * 2 * 3
    chart = ET.parse(tmp_path / "new" / "figure-8.svg")
    assert len(chart.findall(f"{SVG}polyline")) == 4
    assert len(chart.findall(f"{SVG}path")) == 4 * 2  # a bar for each mean
    assert "| nodes | best effort |" in (tmp_path / "new" / "tables.md").read_text()


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")

    told = CliRunner().invoke(command, ["2", "--out", str(tmp_path / "file" / "out")])

    assert isinstance(told.exception, ConfigError)
    assert told.exception.exit_code == 73


@pytest.mark.parametrize("figure", ["3", "10", "x"])
def test_other_figures_are_refused(figure):
    assert CliRunner().invoke(command, [figure]).exit_code == 2

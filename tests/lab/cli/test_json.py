"""``--json`` of verbs that print figures: one object on standard output, all else on the other."""

import json
from dataclasses import dataclass
from enum import StrEnum
from math import inf, nan
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

from lab.cli.paper.codecs import command as codecs
from lab.cli.paper.place import compare_command as place_compare
from lab.frame.printing import fields_of, tell
from lab.grid.clients import Tally
from lab.leaves import in_vain
from lab.leaves.naming import NAMINGS
from lab.nat.run import WAYS, Beside, Outcome


class Blow(StrEnum):
    """What happens."""

    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Felt:
    """What came of it."""

    blow: Blow
    gap_s: float
    rates: dict[tuple[str, str], float]


FELT = Felt(Blow.BROKER, inf, {("site", "hub"): 2.5, ("hub", "site"): nan})


def printed(verb: click.Command, *arguments: str) -> dict[str, Any]:
    """The one JSON object of a verb that ends well."""
    ended = CliRunner().invoke(verb, [*arguments, "--json"])
    assert ended.exit_code == 0, ended.output
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_what_came_of_it_is_one_object_by_the_names_of_fields(capsys):
    tell(["for people"], {"held": True, "felt": [FELT], **fields_of(FELT)}, as_json=True)

    out = capsys.readouterr().out
    felt = {"blow": "broker", "gap_s": None, "rates": {"site,hub": 2.5, "hub,site": None}}
    assert json.loads(out) == {"held": True, "felt": [felt], **felt}
    assert out.count("\n") == 1


def test_numbers_of_numpy_are_numbers(capsys):
    tell([], {"unmet": np.int64(3), "over": np.float32(0.5)}, as_json=True)

    assert json.loads(capsys.readouterr().out) == {"unmet": 3, "over": 0.5}


def test_for_people_there_are_lines(capsys):
    tell(["one", "two"], fields_of(FELT), as_json=False)

    assert capsys.readouterr().out == "one\ntwo\n"


def test_over_delivery_tells_bytes_and_the_verdict(monkeypatch):
    monkeypatch.setattr(in_vain, "NAMINGS", {"shops": NAMINGS["shops"]})

    found = printed(in_vain.command, "--publications", "2000", "--bounds", "375")

    assert found["held"] is True
    shops = found["over_delivery"]["shops"]
    assert [each["bound"] for each in shops] == [375, in_vain.DEFAULT]
    assert 0 < shops[0]["then"]["bytes_in_vain"] <= shops[0]["then"]["bytes_carried"]
    assert found["in_vain_judged"] < in_vain.IN_VAIN_MAX


def test_a_figure_of_a_paper_is_told_by_series_and_place():
    found = printed(codecs, "8", "--seeds", "3", "--nodes-max", "10")

    series = found["figures"]["8"]
    assert len(series) == 4
    assert all(curve["10.0"]["half"] >= 0 for curve in series.values())
    assert [claim["figure"] for claim in found["claims"]] == ["8", "8"]


def test_methods_that_prove_nothing_have_no_bound():
    small = ("--devices", "3", "--topics", "2", "--services", "2")

    found = printed(place_compare, *small, "--method", "greedy", "--method", "search")

    greedy, search = found["methods"]
    assert greedy["power_mw"] > 0
    assert greedy["lower_bound_mw"] is None
    assert search["lower_bound_mw"] <= search["power_mw"]
    assert found["devices"] == 3


@pytest.mark.parametrize(
    ("median_delay", "throughput", "held"),
    [(1.2, None, True), (1.21, None, False), (1.0, 0.9, True), (1.0, 0.89, False)],
)
def test_a_link_behind_nat_is_judged_by_delay_and_by_throughput(median_delay, throughput, held):
    assert Beside("to the hub", median_delay, throughput).held is held


def test_a_site_behind_nat_is_told_beside_the_two_way_link():
    arrivals = {}
    for way in WAYS:
        tally = Tally(1, 1, payload_bytes=24)
        tally.arrived((1).to_bytes(8) + (0).to_bytes(8) + (0).to_bytes(8), 1_000_000)
        arrivals[way] = tally.arrivals(1)

    outcome = Outcome(arrivals, {}, moves=3)

    lines = [*outcome.lines()]
    assert outcome.held
    assert lines[0] == "the router's address changed 3 times"
    assert lines[-1] == "from the hub: median delay 1.00 of the two-way link's"

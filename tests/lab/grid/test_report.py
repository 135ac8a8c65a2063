"""The report for people fits a terminal and hides nothing."""

from dataclasses import replace

import pytest
from rich.console import Console

from lab.grid.clients import Arrivals
from lab.grid.measure import Announcements, Outcome, delivery_faults
from lab.grid.report import as_json, draw, render, render_mesh
from lab.grid.scenario import SPOHN2021
from lab.grid.topology import Grid, expected_mesh
from lab.grid.trial import Delivery
from tests.lab.grid.ids import ids

ARRIVALS = Arrivals(
    sent=1000,
    received=1000,
    duplicates=0,
    disordered=0,
    foreign=0,
    delay_ms_mean=22.346,
    delay_ms_deviation=8.064,
    delay_ms_min=21.0,
    delay_ms_p50=22.0,
    delay_ms_p99=36.0,
    delay_ms_max=117.36,
)


def delivery(place, subscriber, *, hops, arrivals=ARRIVALS):
    return subscriber, Delivery(*ids(6, place), hops, 5.0 * hops, arrivals)


def outcome(*, arrivals=ARRIVALS):
    federated = [
        delivery(2, "2", hops=4, arrivals=arrivals),
        delivery(7, "7", hops=1),
    ]
    return Outcome(
        scenario=SPOHN2021,
        mesh=expected_mesh(SPOHN2021.grid, SPOHN2021.subscribers, redundancy=2),
        relayed_to=ids(7),
        federated=federated,
        centralised=[delivery(2, "A", hops=4), delivery(2, "B", hops=4)],
        announcements=Announcements(count=2, messages=32, flood=16, bound=24),
        control_sent={"core_ann": 32, "hello": 100},
        faults=delivery_faults(federated),
    )


def printed(shown, columns):
    console = Console(width=columns, record=True, file=None, quiet=False, no_color=True)
    with console.capture() as capture:
        console.print(render(shown, columns=columns))
    return capture.get()


@pytest.mark.parametrize("columns", [80, 100])
def test_the_papers_figures_and_ours_stand_side_by_side_uncut(columns):
    text = printed(outcome(), columns)

    assert "…" not in text
    row = next(line for line in text.splitlines() if line.split()[:2] == ["1000", "2"])
    for figure in ("34.77 ±3.17", "22.35 ±8.06", "36.00", "2.35", "0.59"):
        assert figure in row
    assert "42.58 ±4.48" in text
    assert "16.0 messages per core announcement" in text
    assert all(len(line) <= columns for line in text.splitlines())


def test_the_mesh_is_drawn_with_who_has_clients_and_who_only_relays():
    picture = render_mesh(SPOHN2021, outcome().mesh, ids(7)).plain.splitlines()

    assert picture[0] == "The mesh, redundancy 2"
    assert [line.removeprefix("  ") for line in picture[1:6]] == [
        "· 0   ───▷ ○ 1   ━━━▶ ◉ 2 S",
        "△          ▲          ▲",
        "· 3   ───▷ ○ 4   ━━━▶ ○ 5",
        "△          ▲          ▲",
        "· 6 P ───▷ ● 7 S ━━━▶ ○ 8",
    ]
    assert picture[-1] == "  6 is no member and relays to 7"


def test_a_link_that_nobody_uses_towards_the_core_is_a_plain_line():
    grid, (core,) = Grid(2, 2), ids(0)
    mesh = expected_mesh(grid, [core], redundancy=1)

    assert draw(grid, mesh, subscribers=[core], publisher=core) == [
        "◉ 0 SP ◁─── · 1",
        "△           △",
        "· 2    ──── · 3",
    ]


def test_a_loss_and_a_duplicate_show_in_the_table_the_verdict_and_the_json():
    shown = outcome(arrivals=replace(ARRIVALS, received=997, duplicates=2))
    text = printed(shown, 100)

    assert "3 lost, 2 twice" in text
    assert "Nothing lost" not in text
    report = as_json(shown)
    assert (report["ok"], report["federated"][0]["lost"]) == (False, 3)
    assert report["federated"][0]["paper_ms"] == 34.77
    assert report["centralised"][1]["paper_ms"] == 42.58

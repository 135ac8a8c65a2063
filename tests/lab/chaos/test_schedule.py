"""A chaos run's faults come from its seed alone, and each class gets its turn."""

import random
from itertools import islice
from typing import Any

import pytest

from lab.chaos.layout import draw_layout
from lab.chaos.ledger import Ledger
from lab.chaos.schedule import KINDS, MIXED, episodes
from lab.chaos.stage import SmallDisk, Stage, draw_persistent
from lab.grid.running import RunningGrid
from lab.grid.topology import Grid

ALL = [*KINDS, MIXED]


@pytest.fixture
def stage(tmp_path):
    grid, rng = Grid(3, 3), random.Random(7)
    running: Any = RunningGrid(grid, tmp_path, link_delay_ms=5)  # never started: only asked
    running.agents = dict.fromkeys(grid.ids)
    layout = draw_layout(grid, rng)
    disks = {layout.origins[0]: SmallDisk(tmp_path)}
    return Stage(
        running, layout, Ledger(layout), draw_persistent(grid.ids, rng), disks, set(), started_s=0.0
    )


def drawn(stage, seed, count=200, classes=ALL):
    return list(islice(episodes(classes, stage, random.Random(seed)), count))


def test_one_seed_gives_one_schedule(stage):
    assert list(map(str, drawn(stage, 3))) == list(map(str, drawn(stage, 3)))
    assert list(map(str, drawn(stage, 3))) != list(map(str, drawn(stage, 4)))


def test_every_class_comes_once_a_round(stage):
    mixtures = max(1, len(KINDS) // 4)
    first = drawn(stage, 5, len(KINDS) + mixtures)

    assert sorted(e.phase for e in first) == sorted([*KINDS, *[MIXED] * mixtures])


def test_a_round_ends_when_every_class_had_its_turn(stage):
    classes = ["link-cut", "agent-pause"]

    assert [e.round for e in drawn(stage, 5, 6, classes)] == [0, 0, 1, 1, 2, 2]


def test_a_given_span_changes_no_victim(stage):
    drawn_spans = drawn(stage, 3)
    stage.hold_s = 600.0
    given_spans = drawn(stage, 3)

    for one, other in zip(drawn_spans, given_spans, strict=True):
        assert [i.victims for _, i in one.injuries] == [i.victims for _, i in other.injuries]
        assert all(i.hold_s == 600 for _, i in other.injuries if i.kind != "link-reset")


def test_injuries_of_a_mixture_have_different_victims(stage):
    for episode in drawn(stage, 9, classes=[MIXED]):
        victims = [v for _, injury in episode.injuries for v in injury.victims]

        assert len(victims) == len(set(victims)) > 1
        assert episode.phase == MIXED


def test_a_role_is_hurt_where_it_is_played(stage):
    for episode in drawn(stage, 11):
        for _, injury in episode.injuries:
            for role, ids in (
                ("origin", stage.layout.origins),
                ("relay", stage.layout.relays),
                ("destination", stage.layout.destinations),
            ):
                if injury.kind.endswith(f"kill-{role}"):
                    assert all(int(v.split()[1]) in ids for v in injury.victims)


def test_without_agents_none_can_be_hurt(stage):
    stage.grid.agents = {}

    lacking = {name for name, kind in KINDS.items() if kind.lacks(stage) == "no agents"}

    kills = {f"agent-kill-{role}" for role in ("origin", "relay", "destination")}
    assert lacking == {"agent-pause", *kills}

"""The landing folder: files that appear whole, and whose names are all that is remembered."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from federator.collector.landing import Landing
from federator.collector.position import Piece
from federator.errors import ConfigError

CHILD = Path(__file__).with_name("landing_child.py")
SPOOL, OTHER = "00000000000000aa", "00000000000000bb"
NOON_US = 1_700_049_600_000_000  # 2023-11-15 12:00
DAY_US = 86_400_000_000


def piece(first, last=None, *, broker=5, spool=SPOOL, at_us=NOON_US, content=b"x\n"):
    return Piece((broker, spool), first, last or first, at_us, (content,))


@pytest.fixture
def landing(tmp_path):
    with Landing(tmp_path / "landing") as landing:
        yield landing


def names(landing):
    return sorted(str(p.relative_to(landing.path)) for p in landing.path.rglob("*.jsonl"))


def test_a_file_stands_in_the_folder_of_the_hour_of_its_first_line(landing):
    path = landing.write(piece(3, 7, content=b"a\nb\n"))

    assert names(landing) == [f"date=2023-11-15/hour=12/5-{SPOOL}-3-7.jsonl"]
    assert path.read_bytes() == b"a\nb\n"


@pytest.mark.parametrize(
    ("at_us", "folder"),
    [(-1, "date=1970-01-01/hour=00"), (2**63 - 1, "date=9999-12-31/hour=23")],
)
def test_impossible_times_land_at_the_ends_of_time(landing, at_us, folder):
    landing.write(piece(1, at_us=at_us))

    assert names(landing) == [f"{folder}/5-{SPOOL}-1-1.jsonl"]


def test_a_restart_goes_on_where_the_names_end(landing):
    landing.write(piece(1, 9))
    landing.write(piece(10, 12, at_us=NOON_US - DAY_US))
    landing.write(piece(4, 6, broker=6))
    landing.write(piece(1, 2, spool=OTHER))

    again = Landing(landing.path)

    assert again.scan() == {(5, SPOOL): 12, (6, SPOOL): 6, (5, OTHER): 2}
    assert (again.files, again.bytes) == (4, 8)


def test_what_a_killed_run_left_half_written_is_removed(landing):
    folder = landing.write(piece(1)).parent
    leftover = folder / f".5-{SPOOL}-2-99.jsonl.part"
    leftover.write_bytes(b"half a li")

    again = Landing(landing.path)

    assert again.scan() == {(5, SPOOL): 1}
    assert not leftover.exists()
    assert (again.files, again.leftovers) == (1, 1)


def test_what_is_no_file_of_ours_is_left_alone(landing):
    folder = landing.write(piece(1)).parent
    strangers = [
        folder / "README",
        folder / ".README",
        folder / f"5-{SPOOL}-9-1.jsonl",
        folder / f"99999999999-{SPOOL}-1-1.jsonl",
        landing.path / f"5-{SPOOL}-2-2.jsonl",
        landing.path / "date=today",
    ]
    for stranger in strangers:
        stranger.touch()

    assert Landing(landing.path).scan() == {(5, SPOOL): 1}
    assert all(stranger.exists() for stranger in strangers)


def test_a_kill_between_any_two_steps_neither_loses_nor_doubles_nor_leaves_half(tmp_path):
    run = subprocess.run(
        [sys.executable, str(CHILD), str(tmp_path)], capture_output=True, text=True, check=True
    )

    stories = [json.loads(told) for told in run.stdout.splitlines()]

    assert [code for code, *_ in stories] == [9] * (len(stories) - 1) + [0]
    assert len(stories) > 15
    whole = {f"5-{SPOOL}-{n}-{n}.jsonl": f"line {n}\n" for n in (1, 2, 3)}
    for _, killed, in_the_end in stories:
        landed = {name: text for name, text in killed.items() if not name.startswith(".")}
        assert landed.items() <= whole.items()
        assert in_the_end == whole
    assert any(name.startswith(".") for _, killed, _ in stories for name in killed)


def test_a_full_disk_leaves_nothing_behind_and_the_piece_can_be_landed_later(landing):
    landing.write(piece(1))
    folder = landing.path / "date=2023-11-15" / "hour=12"
    obstacle = folder / f".5-{SPOOL}-2-2.jsonl.part"
    obstacle.mkdir()

    with pytest.raises(OSError, match="directory"):
        landing.write(piece(2))
    obstacle.rmdir()
    landing.write(piece(2))

    assert landing.scan() == {(5, SPOOL): 2}


def test_a_second_collector_is_kept_out(landing):
    with pytest.raises(ConfigError) as caught, Landing(landing.path):
        pass

    assert caught.value.exit_code == 75
    assert "another collector uses it" in str(caught.value)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError) as caught, Landing(tmp_path / "file" / "landing"):
        pass

    assert caught.value.exit_code == 73
    assert "landing: " in str(caught.value)


def test_old_days_are_removed_but_for_the_newest_file_of_each_spool(landing):
    landing.write(piece(1, at_us=NOON_US - 9 * DAY_US, spool=OTHER))
    for number in range(1, 11):
        landing.write(piece(number, at_us=NOON_US + (number - 10) * DAY_US))
    noon = datetime.fromtimestamp(NOON_US / 1e6, UTC)

    removed = landing.prune(now=noon, keep_days=3, keep_bytes=0)

    assert removed == 6
    assert [name.partition("/")[0] for name in names(landing)] == [
        "date=2023-11-06",
        *(f"date=2023-11-{day}" for day in (12, 13, 14, 15)),
    ]
    assert Landing(landing.path).scan() == {(5, SPOOL): 10, (5, OTHER): 1}
    assert not (landing.path / "date=2023-11-07").exists()


def test_beyond_the_bytes_the_oldest_go(landing):
    for number in range(1, 11):
        landing.write(piece(number, at_us=NOON_US + number * DAY_US, content=b"0123456789"))

    removed = landing.prune(now=datetime.now(UTC), keep_days=0, keep_bytes=35)

    assert removed == 7
    assert (landing.files, landing.bytes) == (3, 30)
    assert landing.prune(now=datetime.now(UTC), keep_days=0, keep_bytes=1) == 2
    assert names(landing) == [f"date=2023-11-25/hour=12/5-{SPOOL}-10-10.jsonl"]

"""The tour does what its page says, and its recording shows the page's commands."""

import json
import re
import socket

import pytest

from lab.grid.processes.ports import free_ports
from tests.docs import tour
from tests.docs.page import Shell, follow_in, steps

CAST = tour.DOCS / "tour" / "tour.cast"
PICTURE = CAST.with_suffix(".svg")
PORTS = ("18731", "18732", "18733", "18741", "18742", "18743")
HERE = re.compile(r"/(?:root|home|work|tmp|usr|opt|var)/|Traceback")
SIZE_MAX, LONGEST_S, SHORTEST_S = 1_000_000, 150, 90


def recording():
    header, *events = [json.loads(line) for line in CAST.read_text("utf-8").splitlines()]
    return header, events


def shown():
    """What the terminal showed, without colours."""
    _, events = recording()
    text = "".join(text for _, _, text in events).replace("\r\n", "\n")
    return re.sub(r"\x1b\[[\d;]*m", "", text)


@pytest.mark.full
def test_every_command_of_the_tour_prints_what_the_page_shows(tmp_path):
    """As printed but for the ports: those of the page may be taken on this machine."""
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))

    with Shell(tmp_path) as shell:
        tour.begin(shell, tmp_path, ports)
        follow_in(shell, tour.TOUR, ports)


def test_the_recording_is_a_valid_asciicast():
    header, events = recording()

    assert header["version"] == 2
    assert (header["width"], header["height"]) == (100, 28)
    assert header.keys() <= {"version", "width", "height", "timestamp", "env", "title"}
    assert header["env"] == {"TERM": "xterm-256color"}
    times = [at_s for at_s, _, _ in events]
    assert times == sorted(times)
    assert SHORTEST_S < times[-1] < LONGEST_S
    assert {kind for _, kind, _ in events} == {"o"}


def test_the_recording_shows_the_commands_of_the_page_in_order_and_nothing_else():
    typed = [line[2:] for line in shown().splitlines() if line.startswith("$ ")]
    wanted = [line for step in steps(tour.TOUR) for line in step.commands.strip().splitlines()]
    told = [line[2:] for line in shown().splitlines() if line.startswith("# ")]

    assert typed == wanted
    assert told == [title for _, title in tour.titles()]


def test_recording_and_picture_tell_nothing_of_the_machine_and_load_nothing():
    picture = PICTURE.read_text("utf-8")

    for text in (shown(), picture):
        assert HERE.search(text) is None
        assert socket.gethostname() not in text
    assert PICTURE.stat().st_size + CAST.stat().st_size < SIZE_MAX
    assert set(re.findall(r"https?://[^\"'\s)]+", picture)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_only_pauses_are_cut(tmp_path):
    cast = tmp_path / "a.cast"
    cast.write_text('{"version": 2}\n[40.0, "o", "a"]\n[40.5, "o", "ü"]\n[99.0, "o", "c"]\n')

    tour.cut(cast)

    assert [json.loads(line) for line in cast.read_text("utf-8").splitlines()[1:]] == [
        [0.0, "o", "a"],
        [0.5, "o", "ü"],
        [0.5 + tour.READ_MAX_S, "o", "c"],
    ]

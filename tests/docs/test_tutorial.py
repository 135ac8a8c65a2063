"""The tutorial does what it says, command by command."""

from pathlib import Path

from lab.grid.processes.ports import free_ports
from tests.docs.page import agree, follow, steps

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
PORTS = ("18731", "18732", "18741", "18742")


def test_every_command_of_the_tutorial_prints_what_the_page_shows(tmp_path):
    """As printed but for the ports: those of the page may be taken on this machine."""
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))

    follow(TUTORIAL, tmp_path, ports)


def test_the_tutorial_shows_what_most_of_its_commands_print():
    assert sum(step.printed is not None for step in steps(TUTORIAL)) >= 10


def test_a_page_that_says_something_else_is_found_out():
    table = "ready\n\n  id  reason  seq\n  {}  said bye  {}\n"
    assert agree("ready\n...\n" + table.format(1, 7), "ready\n" + table.format(1, 1234))
    assert not agree("ready\n...\n" + table.format(1, 7), "ready\n" + table.format(2, 7))
    assert not agree("broker 1: ready\n", "broker 1: NOT READY\n")
    assert not agree("broker 1: ready\n", "broker 1: ready\nand more\n")
    assert not agree("house 21.5\n", "house 22.5\n")

"""docs/cli.md and docs/lab.md are written from the verbs."""

from pathlib import Path

from federator import cli
from federator.cli.reference import reference
from lab.cli import HEAD, federator_lab

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_the_command_line_is_current():
    """Write it again with `federator --reference > docs/cli.md`."""
    assert (DOCS / "cli.md").read_text("utf-8") == reference(cli.federator)


def test_the_page_of_the_laboratory_is_current():
    """Write it again with `federator-lab --reference > docs/lab.md`."""
    assert (DOCS / "lab.md").read_text("utf-8") == reference(federator_lab, HEAD)


def test_each_verb_has_a_section_with_what_its_help_says():
    page = reference(cli.federator)

    assert "## federator keys issue\n" in page
    assert "Exits 0 when it is ready and stands well in the federation" in page

"""docs/cli.md is written from the verbs."""

from pathlib import Path

from federator import cli
from federator.cli.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_of_the_command_line_is_current():
    """Write it again with `federator --reference > docs/cli.md`."""
    assert PAGE.read_text("utf-8") == reference(cli.federator)


def test_each_verb_has_a_section_with_what_its_help_says():
    page = reference(cli.federator)

    assert "## federator keys issue\n" in page
    assert "Exits 0 when it is ready, 1 when it runs but is not" in page

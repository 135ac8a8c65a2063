"""docs/configuration.md is written from the settings."""

from pathlib import Path

from federator.config.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_configuration_page_is_current():
    """Write it again with `federator check-config --reference > docs/configuration.md`."""
    assert PAGE.read_text("utf-8") == reference()

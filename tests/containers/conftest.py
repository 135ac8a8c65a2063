"""One grid for all tests of a run: each leaves it as it found it."""

from collections.abc import Iterator

import pytest

from tests.containers.compose_grid import ComposeGrid


@pytest.fixture(scope="session")
def grid() -> Iterator[ComposeGrid]:
    """All containers run, all agents are ready, all links are up."""
    made = ComposeGrid()
    try:
        made.up()
        yield made
    finally:
        made.down()

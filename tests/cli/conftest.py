"""A verb as the shell runs it."""

from collections.abc import Callable

import pytest

from federator import cli


@pytest.fixture
def ended() -> Callable[..., int]:
    """Run a command line; its exit code."""

    def run(*arguments: str) -> int:
        with pytest.raises(SystemExit) as raised:
            cli.main(list(arguments))
        assert isinstance(raised.value.code, int)
        return raised.value.code

    return run

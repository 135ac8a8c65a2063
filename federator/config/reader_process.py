"""Has a configuration read by a process of its own, which comes back with settings or a refusal.

An agent does not import pydantic: a reader lives for half a second, and takes its 40 MB along.
"""

import os
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from federator.errors import ConfigError

TIMEOUT_S: Final = 60.0
"""For all of it: the machine may be busy, and a slow reading is better than none."""

_PACKAGES: Final = Path(__file__).parents[2]
"""The folder where ``federator`` lies, with what it needs."""


def outcome(function: str, config: Path | None) -> Any:  # noqa: ANN401 - whatever it returns
    """What ``function``, written ``module:name``, reads in ``config``; it can be pickled.

    It is called here where this process has pydantic already. May take its time.

    Raises ``ConfigError``: it did, or the process that was to call it failed.
    """
    if "pydantic" in sys.modules:
        return _called(function, config)
    try:
        ran = subprocess.run(
            [*interpreter(), "-m", __name__, function],
            input=pickle.dumps(config),
            stdout=subprocess.PIPE,
            env=environment(),
            timeout=TIMEOUT_S,
            check=True,
            process_group=0,  # Ctrl-C at the terminal is for us: we end it
        )
    except (OSError, subprocess.SubprocessError) as error:
        text = f"the configuration was not read: {error}: see the log"
        raise ConfigError(text, exit_code=os.EX_OSERR) from error
    returned, refused = pickle.loads(ran.stdout)
    if refused is not None:
        text, exit_code = refused
        raise ConfigError(text, exit_code=exit_code)
    return returned


def interpreter() -> list[str]:
    """The beginning of a command that runs a module of ours as this process would.

    ``-m`` alone lets modules in the working folder stand for any others; it may do so only where
    that folder is one of ours already, in a checkout.
    """
    here = [] if _works_here() else ["-P"]
    return [sys.executable, *here, *(["-S"] if sys.flags.no_site else [])]


def environment() -> dict[str, str]:
    """The environment of that command.

    An isolated interpreter (``-I``), as the Debian package starts, heeds no variable of Python's
    and was shown our packages by hand. The next one is shown them by the one variable it gets.
    """
    if not sys.flags.isolated:
        return dict(os.environ)
    others = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return {**others, "PYTHONPATH": str(_PACKAGES)}


def _works_here() -> bool:
    """Whether modules in the working folder are ours to import."""
    try:
        return bool({"", os.getcwd()} & set(sys.path))
    except OSError:  # it is gone
        return False


def _called(function: str, config: Path | None) -> object:
    module, _, name = function.partition(":")
    return getattr(import_module(module), name)(config)


def main() -> None:
    """Call the function that the argument names with what comes on standard input."""
    told: tuple[object, tuple[str, int] | None]
    try:
        told = _called(sys.argv[1], pickle.load(sys.stdin.buffer)), None
    except ConfigError as error:
        told = None, (str(error), error.exit_code)
    pickle.dump(told, sys.stdout.buffer)


if __name__ == "__main__":
    main()

"""Reads a configuration in a separate process, which returns settings or an error.

So an agent does not import pydantic: the reader runs for half a second, and its 40 MB end with it.
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
"""For the whole reading; long, because the machine may be busy."""

_PACKAGES: Final = Path(__file__).parents[2]
"""The folder that holds ``federator`` and its dependencies."""


def outcome(function: str, config: Path | None) -> Any:  # noqa: ANN401 - whatever it returns
    """Call ``function``, written ``module:name``, with ``config``; its result must be picklable.

    The call is made in this process if it has imported pydantic already. It may take seconds.

    Raises ``ConfigError`` if the function does, or if the separate process fails.
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
    """The command prefix that runs one of our modules with this interpreter and its search path.

    ``-m`` alone lets modules in the working folder shadow all others; we allow that only if this
    process searches that folder, too, as in a checkout.
    """
    here = [] if _works_here() else ["-P"]
    return [sys.executable, *here, *(["-S"] if sys.flags.no_site else [])]


def environment() -> dict[str, str]:
    """The environment for the command of ``interpreter``.

    The Debian package starts an isolated interpreter (``-I``), which ignores Python's variables and
    got our packages as paths. The separate process gets them through ``PYTHONPATH`` alone.
    """
    if not sys.flags.isolated:
        return dict(os.environ)
    others = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return {**others, "PYTHONPATH": str(_PACKAGES)}


def _works_here() -> bool:
    """Whether this process imports modules from the working folder."""
    try:
        return bool({"", os.getcwd()} & set(sys.path))
    except OSError:  # it is gone
        return False


def _called(function: str, config: Path | None) -> object:
    module, _, name = function.partition(":")
    return getattr(import_module(module), name)(config)


def main() -> None:
    """Call the function named by the argument with the pickle on standard input; write the
    result."""
    result: tuple[object, tuple[str, int] | None]
    try:
        result = _called(sys.argv[1], pickle.load(sys.stdin.buffer)), None
    except ConfigError as error:
        result = None, (str(error), error.exit_code)
    pickle.dump(result, sys.stdout.buffer)


if __name__ == "__main__":
    main()

"""The process that is an agent: as little in it as an agent at rest needs.

``federator run`` reads and checks the configuration with all that takes: the command line's
library, pydantic, words for whatever may be wrong. Then it puts another interpreter in its place
(execve(2): same process id, same open files), which gets the settings out of a file in memory, and
imports neither of the two (``config.held``). That takes a fifth of a second and leaves 25 MB.

Where the agent's modules are imported already, as in what is forked from an interpreter that has
them, it would leave nothing, and the agent is here.
"""

import os
import pickle
import sys
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

from federator.config.held import elsewhere, models
from federator.config.settings import Settings

READS: Final = "federator.cli.daemons.run:settings_of"
RELOADS: Final = "federator.config.reload:reloaded"

_AGENT: Final = "federator.runtime.agent.app"
_FILE_NAME: Final = "federator settings"


@dataclass(frozen=True, slots=True)
class Told:
    """What an agent starts with, checked.

    Attributes:
        config: Where to read it again.
        former: What the broker was told before its role changed (``settings.former``).
    """

    config: Path | None
    settings: Settings
    former: Settings | None


def be_agent(told: Told) -> None:
    """Be the agent until it is stopped. Raises as ``app.serve`` where it is in this process."""
    if _AGENT in sys.modules:
        _serve(told)
    else:
        become(told, __name__)


def become(told: Told, module: str) -> NoReturn:
    """Put an interpreter in our place that holds settings, and runs ``module`` with ``told``."""
    file = os.memfd_create(_FILE_NAME, 0)  # open in what we become, and nowhere on a disk
    with os.fdopen(file, "wb", closefd=False) as opened:
        pickle.dump(told, opened)
    command = [*elsewhere.interpreter(), "-X", models.OPTION, "-m", module, str(file)]
    os.execve(sys.executable, [*command, *sys.argv[1:]], elsewhere.environment())


def _serve(told: Told) -> None:
    logs = import_module("federator.runtime.process.logs")
    logs.configure(told.settings.log)
    reloading = import_module("federator.runtime.process.reloading")
    source = reloading.Source(
        read=partial(elsewhere.outcome, READS, told.config),
        reloaded=partial(elsewhere.outcome, RELOADS),
        set_log_level=logs.set_level,
    )
    import_module(_AGENT).serve(told.settings, source, told.former)


def main() -> NoReturn:
    """Be the agent that the file says, whose number is the first argument; exits as ``federator``.

    The other arguments are those of ``federator``, for people who look at the process.
    """
    # structlog would import it for tracebacks in colour, which our log does not have: 7 MB.
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        with os.fdopen(int(sys.argv[1]), "rb") as file:
            file.seek(0)
            told: Told = pickle.load(file)
        _serve(told)
    except BaseException as error:
        command_line = import_module("federator.command_line")  # what it needs is of use only now
        sys.exit(command_line.explained(error, "federator", debug="--debug" in sys.argv))
    sys.exit(0)


if __name__ == "__main__":
    main()

"""The process that is an agent: as little in it as an agent at rest needs.

``federator run`` knows from its command line which file is wanted, and then puts another
interpreter in its place (execve(2): same process id, same open files), without the command line's
library. That one has the file read, at the start as at SIGHUP, by a process that imports pydantic
and ends (``config.reader_process``). Together they would take 20 MB of an agent's 60.

Where the agent's modules are imported already, as in what is forked from an interpreter that has
them, another one would leave nothing, and the agent is here.
"""

import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

from federator.config import reader_process

READS: Final = "federator.cli.daemons.agent_settings:settings_of"

_AGENT: Final = "federator.runtime.agent.app"


def be_agent(config: Path | None) -> None:
    """Be the agent until it is stopped. Raises as ``app.serve`` where it is in this process."""
    if _AGENT in sys.modules:
        _serve(config)
        return
    command = [*reader_process.interpreter(), "-m", __name__, str(config or "")]
    os.execve(sys.executable, [*command, *sys.argv[1:]], reader_process.environment())


def _serve(config: Path | None) -> None:
    read = partial(reader_process.outcome, READS, config)
    settings, former = read()
    logs = import_module("federator.runtime.process.logs")
    logs.configure(settings.log)
    source = import_module("federator.runtime.process.reloading").Source(
        read=lambda: read()[0],
        reloaded=import_module("federator.config.reload").reloaded,
        set_log_level=logs.set_level,
    )
    import_module(_AGENT).serve(settings, source, former)


def main() -> NoReturn:
    """Be the agent of the file that the first argument names, if any; exits as ``federator``.

    The other arguments are those of ``federator``, for people who look at the process.
    """
    # structlog would import it for tracebacks in colour, which our log does not have: 7 MB.
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        _serve(Path(sys.argv[1]) if sys.argv[1] else None)
    except BaseException as error:
        command_line = import_module("federator.command_line")  # what it needs is of use only now
        sys.exit(command_line.explained(error, "federator", debug="--debug" in sys.argv))
    sys.exit(0)


if __name__ == "__main__":
    main()

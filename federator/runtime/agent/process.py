"""The agent's process: it holds only what an agent at rest needs.

``federator run`` gets the file from its command line and replaces itself by another interpreter
(execve(2): same process id, same open files), without the command line's library. At the start and
at SIGHUP that one has a process that imports pydantic, and then ends, read the file
(``config.reader_process``). Together they would take 20 MB of an agent's 60.

Where the agent's modules are already imported, as in a fork of an interpreter that has them, a new
interpreter would save nothing, and the agent runs here.
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
    """Run the agent until it is stopped. Raises as ``app.serve`` if it runs in this process."""
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
    """Run the agent of the file that the first argument names, if any; exit as ``federator``.

    The other arguments are those of ``federator``, for people reading the process list.
    """
    # structlog would import it for tracebacks in colour, which our log does not have: 7 MB.
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        _serve(Path(sys.argv[1]) if sys.argv[1] else None)
    except BaseException as error:
        command_line = import_module("federator.command_line")  # needed only now
        sys.exit(command_line.explained(error, "federator", debug="--debug" in sys.argv))
    sys.exit(0)


if __name__ == "__main__":
    main()

"""An agent whose allocations are traced: what takes its memory.

Run as a program this is ``federator run`` with Python's own tracing, which costs memory and time:
what such an agent takes in all is not what agents take. ``lab.bench.traced_agent`` is what it
becomes.
"""

import sys
from pathlib import Path

from federator.config.held import elsewhere, models
from federator.runtime.agent import process
from lab.bench.traced_agent import FILE
from lab.grid.processes import children
from lab.grid.processes.children import Process, python

__all__ = ["FILE", "spawn"]


def spawn(command: list[str], *, log: Path) -> Process:
    """As ``children.spawn``, but ``federator run`` is traced."""
    if command[:4] == python("federator", "run"):
        command = python("lab.bench.traced", *command[3:])
    return children.spawn(command, log=log)


def main() -> None:
    """Read the configuration, and become the agent."""
    assert models.VALIDATES, "who holds settings is the agent already"
    config = Path(sys.argv[-1])
    settings = elsewhere.outcome(process.READS, config)
    process.become(process.Told(config, settings, None), "lab.bench.traced_agent")


if __name__ == "__main__":
    main()

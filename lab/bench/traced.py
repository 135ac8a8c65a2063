"""An agent whose allocations are traced: what takes its memory.

That costs memory and time: what such an agent takes in all is not what agents take.
"""

from pathlib import Path

from lab.bench.traced_agent import FILE
from lab.grid.processes import children
from lab.grid.processes.children import Process, python

__all__ = ["FILE", "spawn"]


def spawn(command: list[str], *, log: Path) -> Process:
    """As ``children.spawn``, but what ``federator run -c FILE`` becomes is traced."""
    if command[:4] == python("federator", "run"):
        command = python("lab.bench.traced_agent", command[-1])
    return children.spawn(command, log=log)

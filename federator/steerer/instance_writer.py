"""Writes what a steerer measured to a file, as an instance for ``federator plan``.

An instance is the planner's input: brokers, links with their free capacity, and flows with their
rates. So an operator can compute what the steerer could still improve.

It touches that one file, which it replaces as a whole. It computes and waits for the disk, so it
runs in the solver's thread, not in the event loop.

Source: docs/steering.md, "What was measured, as an instance".
"""

from pathlib import Path
from typing import Final

import structlog

from federator.planner.flow.instance_file import encode
from federator.planner.steering.decision import Decider
from federator.planner.steering.export import measured
from federator.protocol.types import Millis
from federator.runtime.process.clocks import monotonic_ms
from federator.runtime.storage.durable import write_whole

EVERY_MS: Final = Millis(60_000)
"""Least time between two automatic writes."""

READABLE_FILE: Final = 0o644
"""The mode of the file: every user may read it."""

_log = structlog.get_logger()


class InstanceWriter:
    """Writes what ``decider`` measured to ``path``."""

    def __init__(self, path: Path, decider: Decider) -> None:
        self._path, self._decider = path, decider
        self._due_ms = Millis(0)

    def write_if_due(self) -> None:
        """Write, unless that was tried less than ``EVERY_MS`` ago."""
        if monotonic_ms() >= self._due_ms:
            self.write()

    def write(self) -> None:
        """Write now, if any flow was measured; a failure is logged."""
        problem = self._decider.measured()
        if problem is None:
            return
        self._due_ms = Millis(monotonic_ms() + EVERY_MS)
        instance, path_cost, overloaded = measured(problem, self._decider.names())
        try:
            write_whole(self._path, encode(instance), mode=READABLE_FILE)
        except OSError as error:
            reason = error.strerror or str(error)
            _log.warning("steer.instance_not_written", path=str(self._path), reason=reason)
            return
        _log.info(
            "steer.instance_written",
            path=str(self._path),
            flows=instance.topics,
            path_cost=path_cost,
            overloaded=overloaded,
        )

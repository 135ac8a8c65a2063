"""Writes a steerer's measurements to a file for ``federator plan``; in the solver's thread.

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

_log = structlog.get_logger()


class InstanceWriter:
    """Writes what ``decider`` measured to ``path``, once a minute and on request."""

    def __init__(self, path: Path, decider: Decider) -> None:
        self._path, self._decider = path, decider
        self._due_ms = Millis(0)

    def write_if_due(self) -> None:
        """Write, unless that was done within a minute."""
        if monotonic_ms() >= self._due_ms:
            self.write()

    def write(self) -> None:
        """Write now; nothing while no flow is known."""
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

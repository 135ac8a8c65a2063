"""The planner's word on disk: ``core_priority.json`` in an agent's state folder.

    {"priority": -3, "valid_until_ms": 1767225600000}

Put in place by renaming, so that it is never half there. ``federator place cores --write`` makes
the files of a whole federation.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import structlog

from federator.config.settings import Settings
from federator.protocol.events import PriorityChanged
from federator.protocol.routing.placed_priority import PlacedPriority
from federator.runtime.process.clocks import monotonic_ms, wall_clock_ms

FILE_NAME = "core_priority.json"
FILE_BYTES_MAX = 4_096
VALID_MS_MAX = 7 * 86_400_000
"""A word that says to hold longer is not believed: somebody mistook seconds for milliseconds."""

_log = structlog.get_logger()


class Placed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of the file. ``valid_until_ms`` is wall clock, since 1970."""

    priority: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
    valid_until_ms: int


class PriorityFile:
    """Reads the file again and again; complains once per content that cannot be used."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE_NAME
        self._complained_of = (b"", "")

    def read(self) -> int | None:
        """The priority; ``None`` when the file is absent, unusable or no longer valid."""
        content = b""
        try:
            with self._path.open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
            if len(content) > FILE_BYTES_MAX:
                raise ValueError(f"longer than {FILE_BYTES_MAX} bytes")
            placed = msgspec.json.decode(content, type=Placed)
            left_ms = placed.valid_until_ms - wall_clock_ms()
            if left_ms > VALID_MS_MAX:
                raise ValueError(f"valid for more than {VALID_MS_MAX} ms")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, msgspec.DecodeError) as error:
            why = str(getattr(error, "strerror", error))
            if self._complained_of != (content, why):
                self._complained_of = (content, why)
                _log.warning("core.priority_file_unusable", path=str(self._path), why=why)
            return None
        return placed.priority if left_ms > 0 else None


async def follow_placement(
    settings: Settings,
    state_dir: Path,
    *,
    planned: Callable[[], int | None],
    changed: Callable[[PriorityChanged], None],
) -> None:
    """Tell which priority we have as a core, whenever that changes, until cancelled.

    Args:
        planned: What a steerer's plan says that holds now; it goes before the file.
    """
    mesh = settings.mesh
    follower = PlacedPriority(settings.broker.priority, hold_ms=mesh.core_hold_ms)
    file = PriorityFile(state_dir)
    while True:
        placed = planned()
        if placed is None:
            placed = file.read()
        priority = follower.on_read(placed, now_ms=monotonic_ms())
        if priority is not None:
            _log.info("core.priority", priority=priority)
            changed(PriorityChanged(priority))
        await asyncio.sleep(mesh.core_check_ms / 1000)

"""Drives the decision which hub serves a leaf, and keeps it on disk.

Source: docs/hubs.md; ``protocol.leaves.leaf_serving``.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import structlog

from federator.config.settings import PortSettings, Settings
from federator.protocol.effects import Pause, Proceed
from federator.protocol.events import HubChosen
from federator.protocol.leaves.leaf_serving import LeafServing
from federator.protocol.leaves.stamps import Stamps
from federator.protocol.messages.serving import Served, latest, served_record
from federator.protocol.node import Node
from federator.protocol.types import BrokerId
from federator.runtime.data.data_path import DataPath
from federator.runtime.process.clocks import DeadlineTimer, both_clocks
from federator.runtime.storage import damage

FILE: Final = "served"

_log = structlog.get_logger()


class ServedFile:
    """The note in a state folder; the file's age is the note's."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def read(self) -> tuple[Served | None, int]:
        """The last decision, and when it was written or touched, in microseconds; 0: never."""
        served = damage.read(self._path, _decode)
        try:
            return served, self._path.stat().st_mtime_ns // 1_000
        except OSError:
            return None, 0

    def write(self, served: Served) -> bool:
        """Store ``served``; return whether that worked."""
        try:
            damage.write(self._path, served_record(served).encode())
        except OSError as error:
            _log.warning("leaf.note_failed", reason=error.strerror or str(error))
            return False
        return True

    def touch(self) -> None:
        """Record that the decision is still valid."""
        with contextlib.suppress(OSError):
            os.utime(self._path)


def _decode(content: bytes) -> Served:
    served = latest([content.decode().strip()])
    if served is None:
        raise ValueError("it names no hub")
    return served


class LeafServingService:
    """Decides which hub serves this leaf, or the leaf of this port; idle for any other agent."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        node: Node,
        path: DataPath,
        stamps: Stamps,
        handle: Callable[[HubChosen], None],
        *,
        has_two_ways: bool,
        on_roaming: Callable[[], None],
    ) -> None:
        leaf = BrokerId(settings.leaf.id) if isinstance(settings, PortSettings) else None
        self.decides = LeafServing(
            node.links,
            node.serving,
            path.custody,
            stamps,
            ServedFile(folder),
            handle,
            leaf=leaf,
            has_two_ways=has_two_ways,
            on_roaming=on_roaming,
        )
        if settings.hubs:
            self.decides.choose_among(
                settings.hubs, both_clocks(), return_after_ms=_leisure_ms(settings)
            )
        self._timer = DeadlineTimer(self._on_time)

    def on_neighbour(self, neighbour: BrokerId, up: bool) -> None:
        """A link came up, or was lost."""
        self.decides.on_neighbour(neighbour, up, both_clocks())
        self._arm()

    def follow(self, settings: Settings, *, returns: bool) -> None:
        """Prefer these hubs; ``returns``: the leaf's operator wants the switch now."""
        if settings.hubs:
            self.decides.prefer(settings.hubs, both_clocks(), return_after_ms=_leisure_ms(settings))
            if returns:
                self.decides.return_now(both_clocks())
            self._arm()

    def perform(self, effect: Pause | Proceed) -> None:
        """Pause or resume the exchange with a broker, and remember it."""
        self.decides.perform(effect)

    def snapshot(self) -> dict[str, Any] | None:
        """The serving hub of a leaf with two hubs; ``None`` for any other broker."""
        choice = self.decides.choice
        if choice is None:
            return None
        return {"served_by": choice.hub, "in_reserve": sorted(choice.others)}

    def _on_time(self) -> None:
        self.decides.on_time(both_clocks())
        self._arm()

    def _arm(self) -> None:
        self._timer.set(self.decides.next_deadline_ms())


def _leisure_ms(settings: Settings) -> int:
    return 1_000 * settings.links.return_after_s

"""The last changes of meshes here, kept for metrics until they are read.

No decision depends on the log. It is bounded, so it may stay unread for ever.

Source: docs/metrics.md, "events".
"""

from collections import deque
from dataclasses import dataclass
from typing import Final, Literal

from federator.protocol.types import BrokerId

ENTRIES_MAX: Final = 1_024

MeshChange = Literal["core_changed", "mesh_joined", "mesh_left", "parent_changed"]


@dataclass(frozen=True, slots=True)
class MeshEntry:
    """One change of a mesh, or of our parents."""

    kind: MeshChange  # what changed
    # The filter of the mesh; ``None`` for parents, which all meshes of a core share.
    filter: str | None
    core: BrokerId | None  # the core of the mesh, now
    before: BrokerId | None = None  # the core before, if it changed
    parents: tuple[BrokerId, ...] = ()  # the parents towards the core, if they changed


class MeshEventLog:
    """The first ``ENTRIES_MAX`` changes since it was last read."""

    def __init__(self) -> None:
        self.missed = 0  # changes dropped for lack of room since then
        self._entries: deque[MeshEntry] = deque()

    def note(self, entry: MeshEntry) -> None:
        """Record one change; records between agents, which begin with ``$``, are skipped."""
        if entry.filter is not None and entry.filter.startswith("$"):
            return
        if len(self._entries) < ENTRIES_MAX:
            self._entries.append(entry)
        else:
            self.missed += 1

    def take(self) -> tuple[list[MeshEntry], int]:
        """Return the changes, and how many were dropped; reset both."""
        taken = list(self._entries), self.missed
        self._entries.clear()
        self.missed = 0
        return taken

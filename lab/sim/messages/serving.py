"""Wakes up who decides by whom a leaf is served, as ``runtime.leaves.serving`` does; the note.

Source: docs/hubs.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from federator.protocol.effects import Pause, Proceed
from federator.protocol.leaves.leaf_serving import LeafServing
from federator.protocol.messages.serving import Served
from federator.protocol.types import BrokerId
from lab.sim.data import DataWorld, WakeUp
from lab.sim.network import Agent


@dataclass(slots=True)
class NoteFile:
    """On a host's disk: what was decided, and when it was touched, by the host's wall clock."""

    served: Served | None = None
    touched_us: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """The file in use: ``now_us`` is the host's wall clock."""

    file: NoteFile
    can_write: Callable[[], bool]
    now_us: Callable[[], int]

    def read(self) -> tuple[Served | None, int]:
        """What was decided last, and when."""
        return self.file.served, self.file.touched_us

    def write(self, served: Served) -> bool:
        """Keep this instead, unless the disk is full."""
        if not self.can_write():
            return False
        self.file.served = served
        self.touch()
        return True

    def touch(self) -> None:
        """It holds still, now."""
        self.file.touched_us = self.now_us()


@dataclass(eq=False, repr=False)
class Serving:
    """Of one agent."""

    agent: Agent
    world: DataWorld
    decides: LeafServing
    _wake_up: WakeUp = field(init=False)

    def __post_init__(self) -> None:
        next_deadline_ms = self.decides.next_deadline_ms
        self._wake_up = WakeUp(self.agent, self.world, next_deadline_ms, self._on_time)

    def on_neighbour(self, neighbour: BrokerId, up: bool) -> None:
        """A link came up, or was lost."""
        self.decides.on_neighbour(neighbour, up, self.world.now_of(self.agent))
        self._wake_up.arm()

    def perform(self, effect: Pause | Proceed) -> None:
        """Exchange nothing with a broker, or exchange again, and remember it."""
        self.decides.perform(effect)

    def _on_time(self) -> None:
        now, due_ms = self.world.now_of(self.agent), self.decides.next_deadline_ms()
        if due_ms is not None and now.ms >= due_ms:
            self.decides.on_time(now)
        self._wake_up.arm()

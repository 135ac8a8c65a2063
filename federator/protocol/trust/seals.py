"""What frames are sealed and opened with."""

from typing import Protocol

from federator.protocol.trust.guard import Guard
from federator.protocol.types import BrokerId


class Seals(Protocol):
    """Seals frames, and opens those of others."""

    @property
    def guard(self) -> Guard:
        """Has the neighbours' keys."""

    @property
    def proves(self) -> bool:
        """Whether frames under custody are proven: ours, and those that we accept."""

    def open_frame(self, payload: bytes) -> tuple[BrokerId, bytes] | None:
        """The agent that sealed a frame, and the frame; ``None`` when it was refused."""

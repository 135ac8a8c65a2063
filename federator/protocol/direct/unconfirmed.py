"""Frames that were sent directly to a neighbour's agent and are not confirmed yet.

When a connection breaks, some of what we sent arrived, and some did not. So all unconfirmed frames
are sent once more, through the neighbour's broker, and the duplicate window there removes those
that had arrived. Urgent frames may overtake others, so each sort is counted by itself.

Source: docs/direct.md, "Nothing is lost when it ends".
"""

from collections import deque
from typing import Final

from federator.errors import DecodeError
from federator.protocol.trust.sealed_connection import SealedConnection
from federator.protocol.types import Millis

FRAME_BYTES: Final = 64
"""What a frame counts beside its own bytes."""

SILENCE_MS: Final = Millis(1_200)
"""For how long a confirmation may be missing: with the time between two looks less than 2 s."""

SLOW_BYTES_PER_MS: Final = 128
"""A long frame has more time: what it takes on a link of 1 Mbit/s."""


class _Lane:
    """Frames of one sort, which arrive in the order in which they were sent."""

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.confirmed = 0  # how many, since the connection began


class Unconfirmed:
    """What was sent over one connection and is not confirmed.

    Args:
        bytes_max: Limit, so that a neighbour that does not answer costs no more.
        line: Seals frames for their places on the connection; ``None`` in an open federation.
    """

    def __init__(self, bytes_max: int, line: SealedConnection | None = None) -> None:
        self._bytes_max = bytes_max
        self.line = line
        self._data, self._urgent = _Lane(), _Lane()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._data.frames) + len(self._urgent.frames)

    @property
    def has_room(self) -> bool:
        """Whether more may be sent before something is confirmed."""
        return self.bytes < self._bytes_max

    @property
    def confirmed(self) -> int:
        """How many frames were confirmed."""
        return self._data.confirmed + self._urgent.confirmed

    @property
    def patience_ms(self) -> Millis:
        """How long it may take until more is confirmed."""
        heads = [lane.frames[0] for lane in (self._data, self._urgent) if lane.frames]
        return Millis(SILENCE_MS + max(map(len, heads), default=0) // SLOW_BYTES_PER_MS)

    def add(self, frame: bytes, *, urgent: bool) -> None:
        """Keep ``frame``, which was sent."""
        (self._urgent if urgent else self._data).frames.append(frame)
        self.bytes += len(frame) + FRAME_BYTES

    def confirm(self, data: int, urgent: int) -> None:
        """Handle the neighbour's counts of frames received on this connection, by sort.

        Raises:
            DecodeError: A count exceeds what was sent, or is smaller than before.
        """
        for lane, count in ((self._data, data), (self._urgent, urgent)):
            if not 0 <= count - lane.confirmed <= len(lane.frames):
                sent = lane.confirmed + len(lane.frames)
                text = f"{count} frames confirmed of {sent}, {lane.confirmed} before"
                raise DecodeError(text)
            while lane.confirmed < count:
                lane.confirmed += 1
                self.bytes -= len(lane.frames.popleft()) + FRAME_BYTES

    def take_back(self) -> list[bytes]:
        """Remove all unconfirmed frames, and return them: urgent ones first, each sort in order."""
        frames = [*self._urgent.frames, *self._data.frames]
        self._urgent.frames.clear()
        self._data.frames.clear()
        self.bytes = 0
        return frames

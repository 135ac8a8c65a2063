"""A value that is longer than a letter is requested part by part.

Source: docs/protocol.md 13.
"""

from typing import Final

from federator.protocol.forwarding.parts import WHOLE_BYTES_MAX
from federator.protocol.messages.control import RetainedEntry
from federator.protocol.types import BrokerId

PART_BYTES: Final = 65_536
RESTARTS_MAX: Final = 3
"""A value that changes so often while its parts arrive is left to the next comparison."""


class LongValue:
    """The parts received so far of the requested value."""

    def __init__(self) -> None:
        self._of: tuple[BrokerId, str] | None = None  # the broker that gives it, and its topic
        self._entry: RetainedEntry | None = None
        self._content = bytearray()
        self._restarts = 0

    def next_at(self, giver: BrokerId, topic: str) -> int:
        """The offset of the part to request next."""
        if self._of != (giver, topic):
            self._of, self._entry, self._restarts = (giver, topic), None, 0
            self._content.clear()
        return len(self._content)

    def put(self, entry: RetainedEntry, part: bytes, *, at: int, size: int) -> bytes | None:
        """Take the part at offset ``at``. Return the packet of ``size`` bytes once it is complete,
        and an empty one until then; ``None``: give the value up.
        """
        if entry != self._entry or at != len(self._content):
            self._restarts += self._entry is not None
            self._entry = entry
            self._content.clear()
        if self._restarts > RESTARTS_MAX or size > WHOLE_BYTES_MAX:
            return None
        if at != len(self._content):
            return b""  # it has changed meanwhile: begin anew
        self._content += part
        if len(self._content) >= size:
            self._of = None
            return bytes(self._content) if len(self._content) == size else None
        return b"" if len(part) == PART_BYTES else None

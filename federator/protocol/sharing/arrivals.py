"""Parcels that came to us: each once, and confirmed when our own broker has it.

Our broker acknowledges in order, so every parcel waits for a position in the stream of what we
published. A parcel that comes again after it was confirmed is confirmed again: the word was lost.

Source: docs/protocol.md section 12.
"""

from collections import deque
from typing import Final

from federator.protocol.duplicates import DuplicateLog
from federator.protocol.sharing.parcels import RANGES_MAX, Confirmation
from federator.protocol.types import BrokerId, Epoch

PARCELS_REMEMBERED: Final = 65_536
ORIGINS_MAX: Final = 4_096

_Name = tuple[BrokerId, Epoch, int]


class Arrivals:
    """What came, what waits for our broker, and what is to be confirmed."""

    def __init__(self) -> None:
        self._seen = DuplicateLog(window_bits=PARCELS_REMEMBERED, origins_max=ORIGINS_MAX)
        self._open: set[_Name] = set()
        self._published: deque[tuple[int, _Name]] = deque()
        self._confirm: set[_Name] = set()

    @property
    def busy(self) -> bool:
        """Whether something waits for our broker, or to be confirmed."""
        return bool(self._published or self._confirm)

    def admit(self, origin: BrokerId, epoch: Epoch, number: int) -> bool:
        """Whether this parcel must be served; it then stays open until ``published``."""
        name = (origin, epoch, number)
        first, _ = self._seen.admit(origin, epoch, number, k=1, mask=1)
        if first:
            self._open.add(name)
        elif name not in self._open:
            self._confirm.add(name)
        return first

    def published(self, origin: BrokerId, epoch: Epoch, number: int, position: int) -> None:
        """The parcel went to our broker; it has it once it acknowledged ``position``."""
        self._published.append((position, (origin, epoch, number)))

    def settle(self, through: int) -> None:
        """Our broker acknowledged everything up to the position ``through``."""
        while self._published and self._published[0][0] <= through:
            _, name = self._published.popleft()
            self._open.discard(name)
            self._confirm.add(name)

    def confirmations(self) -> list[tuple[BrokerId, Confirmation]]:
        """What to tell the origins now."""
        numbers: dict[tuple[BrokerId, Epoch], list[int]] = {}
        for origin, epoch, number in sorted(self._confirm):
            numbers.setdefault((origin, epoch), []).append(number)
        self._confirm.clear()
        told: list[tuple[BrokerId, Confirmation]] = []
        for (origin, epoch), each in numbers.items():
            ranges = _ranges(each)
            told.extend(
                (origin, Confirmation(epoch, tuple(ranges[at : at + RANGES_MAX])))
                for at in range(0, len(ranges), RANGES_MAX)
            )
        return told


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as pairs of first and last."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges

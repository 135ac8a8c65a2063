"""The last numbers of cores that are long gone, so that the numbers of a core only grow.

A core that lost its disk and had its clock set back may return when every way to it was erased.
Whoever holds frames, waves or routes of its former epoch would take the new ones for old. So a
little outlives the route, as a parish register outlives the parishioner: the number, by which the
core is told to renew its epoch.

Source: docs/protocol.md sections 1 and 6.8.
"""

from collections import OrderedDict

from federator.protocol.core_route import Number
from federator.protocol.types import EPOCH_LEAP_MAX, BrokerId, Epoch


class FormerNumbers:
    """By core, the number under which it was erased.

    Args:
        cores_max: Cores remembered; the one erased longest ago is forgotten first.
    """

    def __init__(self, *, cores_max: int) -> None:
        self._cores_max = cores_max
        self._numbers: OrderedDict[BrokerId, Number] = OrderedDict()

    def __len__(self) -> int:
        return len(self._numbers)

    def keep(self, core: BrokerId, number: Number) -> None:
        """``core`` is erased, and had ``number``."""
        self._numbers[core] = number
        self._numbers.move_to_end(core)
        if len(self._numbers) > self._cores_max:
            self._numbers.popitem(last=False)

    def take(self, core: BrokerId, epoch: Epoch) -> Number | None:
        """What ``core`` had, now that somebody announces it under ``epoch``.

        A number further ahead than anybody's word moves an epoch is dropped: the core would not
        believe it, and could never return.
        """
        number = self._numbers.pop(core, None)
        believable = number is not None and number[0] - epoch <= EPOCH_LEAP_MAX
        return number if believable else None

"""What a link loses, told from the gaps in the numbers of what arrives.

A road that is open or closed: what counts is how often it closes and how long it stays so. The
share of datagrams lost (PLR) and the mean length of a run of losses (ABL) are all that there is to
know of a Gilbert-Elliott link. A number that is missing counts as lost once ``LATE_MAX`` later
numbers are out: until then it may be late. Old times count half as much after every ``MEMORY``
datagrams, and whenever the owner says so.

Source: Esposito 2018, 2; lab/papers/codecs/loss.py for the model.
"""

from typing import Final

LATE_MAX: Final = 16
MEMORY: Final = 2_048
PRIOR: Final = 50.0
"""Datagrams without a loss that are assumed to have come before the first one."""

GAP_MAX: Final = 4_096
"""A longer silence of numbers is a new beginning: nobody asks what a dead link lost."""


class LossMeter:
    """Measures one direction of a link.

    Attributes:
        judged: Datagrams that were found to have come or to be lost.
        lost: Datagrams that were found to be lost.
    """

    def __init__(self) -> None:
        self.judged = 0
        self.lost = 0
        self._sent = PRIOR
        self._missing = 0.0
        self._runs = 0.0
        self._top: int | None = None
        self._came = 0  # bit i: number top - i
        self._in_run = False

    @property
    def plr(self) -> float:
        """Share of datagrams lost, lately."""
        return self._missing / self._sent

    @property
    def abl(self) -> float:
        """Datagrams lost in a row on average, lately; at least 1."""
        return max(1.0, self._missing / self._runs) if self._runs else 1.0

    def restart(self) -> None:
        """Let numbers begin anew; what was learnt stays."""
        self._top = None

    def age(self) -> None:
        """Count what was learnt so far half as much from now on."""
        self._sent = max(self._sent / 2, PRIOR)
        self._missing /= 2
        self._runs /= 2

    def note(self, number: int) -> None:
        """Note that the datagram with ``number`` came."""
        top = self._top
        if top is None or number > top + GAP_MAX:
            self._top, self._came, self._in_run = number, (1 << LATE_MAX) - 1, False
            return
        if number <= top:
            self._came |= 1 << (top - number) if top - number < LATE_MAX else 0
            return
        while top < number:
            top += 1
            self._judge(bool(self._came >> (LATE_MAX - 1) & 1))
            self._came = (self._came << 1) & ((1 << LATE_MAX) - 1)
        self._came |= 1
        self._top = top

    def _judge(self, came: bool) -> None:
        self.judged += 1
        self._sent += 1
        if not came:
            self.lost += 1
            self._missing += 1
            self._runs += not self._in_run
        self._in_run = not came
        if self._sent > MEMORY + PRIOR:
            self.age()

"""What a link loses, and how many repair packets make it unlikely that a lost part stays lost.

The link is a road that is open or closed: what counts is how often it closes and for how long. The
share of datagrams lost (PLR) and the mean length of a run of losses (ABL) describe a
Gilbert-Elliott link completely. The receiver computes both from the gaps in the numbers of what
arrives, and the sender chooses the number of repair packets by them.

Every part is in two windows: that of its own group of parts, and that of the next group, which
looks back. (In three if groups are short; that is not counted on here.) So the link sends A B C D:
the parts of a group, the repair packets of its window, the parts of the next group, and the repair
packets of the next window. A part of A stays lost when B does not repair the first window and D not
the second: each window repairs as many losses, of parts and of its own repair packets, as it has
repair packets. The chain of Gilbert and Elliott gives the probability that both fail. D also
repairs a burst that eats B, so looking back costs a wait in the rare case, where one window alone
would need twice the packets in every case.

Such a repair is late, though, and on a path of several links one link's late parts add to
another's. So the first window alone must not fail too often, either.

Every agent on the path decodes, and makes repair packets for the next link only. So no link's
redundancy survives beyond it, and the leader's choice in the game of the paper is reduced to what
its follower loses. See docs/udp-fec.md, "How many, and who decodes".

Source: Esposito 2018, 2 and 3.2; RFC 8681 for windows that slide; lab/papers/codecs/loss.py for the
model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

from federator.protocol.datagrams.wire import REPAIRS_PER_WINDOW_MAX

PLR_MAX: Final = 0.5
"""A link that loses more is not used: no redundancy helps there."""

ABL_MAX: Final = 16.0
_PLR_STEPS = 2_000
_ABL_STEPS = 4

LATE_MAX: Final = 16
MEMORY: Final = 2_048
PRIOR: Final = 50.0
"""So many datagrams without a loss are assumed to have come before the first one."""

GAP_MAX: Final = 4_096
"""A longer gap in the numbers is a new beginning: losses on a dead link do not count."""

Lost = list[float]
"""The probability that so many packets are lost: index by number."""


def repairs_for(
    parts: int,
    plr: float,
    abl: float,
    *,
    failing_max: float,
    repairs_max: int,
    late_max: float = 1.0,
) -> int:
    """The least number of repair packets with which parts seldom stay lost, or come late.

    Args:
        parts: Parts in the group; the next group is assumed to have as many.
        plr: Share of packets that the link loses.
        abl: How many it loses in a row, on average.
        failing_max: The share of groups of which a part may stay lost.
        repairs_max: Upper limit.
        late_max: The share of groups that their own window may not repair.
    """
    plr_step = round(min(plr, PLR_MAX) * _PLR_STEPS)
    abl_step = round(min(max(abl, 1.0), ABL_MAX) * _ABL_STEPS)
    most = min(repairs_max, REPAIRS_PER_WINDOW_MAX)
    return _needed(parts, plr_step, abl_step, failing_max, late_max, most)


@lru_cache(maxsize=4_096)
def _needed(
    parts: int, plr_step: int, abl_step: int, failing_max: float, late_max: float, most: int
) -> int:
    if not plr_step:
        return 0
    chain = Chain(plr_step / _PLR_STEPS, abl_step / _ABL_STEPS)
    for repairs in range(most):
        late, lost = chain.late_and_lost(parts, repairs)
        if late <= late_max and lost <= failing_max:
            return repairs
    return most


class Chain:
    """The Gilbert-Elliott model of a link; ``plr`` is below 1."""

    def __init__(self, plr: float, abl: float) -> None:
        self._plr = plr
        self._to_good = 1.0 / abl
        self._to_bad = min(1.0, self._to_good * plr / (1.0 - plr))

    def late_and_lost(self, parts: int, repairs: int) -> tuple[float, float]:
        """P(a group's own window does not repair it), P(a part of it stays lost)."""
        after_a = self.walk(parts, 1.0 - self._plr, self._plr)
        late = total = 0.0
        for state in (0, 1):
            after_b = self.walk(repairs, 1.0 - state, float(state))
            for then in (0, 1):
                later = self.walk(parts + repairs, 1.0 - then, float(then))
                beyond = _tails([g + b for g, b in zip(*later, strict=True)])
                failed_b = _tails(after_b[then])
                for lost in range(1, parts + 1):
                    over = max(0, repairs - lost + 1)  # with so many more losses the window fails
                    if over < len(failed_b):
                        fails = after_a[state][lost] * failed_b[over]
                        late += fails
                        total += fails * beyond[over] if over < len(beyond) else 0.0
        return late, total

    def walk(self, steps: int, good_share: float, bad_share: float) -> tuple[Lost, Lost]:
        """P(k of ``steps`` packets lost, and the link then good or bad), from the given shares."""
        good, bad = [0.0] * (steps + 1), [0.0] * (steps + 1)
        good[0], bad[0] = good_share, bad_share
        to_good, to_bad = self._to_good, self._to_bad
        for _ in range(steps):
            good, bad = (
                [g * (1.0 - to_bad) + b * to_good for g, b in zip(good, bad, strict=True)],
                [g * to_bad + b * (1.0 - to_good) for g, b in zip(good, bad, strict=True)],
            )
            bad = [0.0, *bad[:-1]]
        return good, bad


def _tails(shares: Lost) -> Lost:
    """P(at least k), for k in 0..n."""
    tails, above = [], 0.0
    for share in reversed(shares):
        above += share
        tails.append(above)
    return tails[::-1]


@dataclass(eq=False)
class LossMeter:
    """Measures one direction of a link.

    A missing number counts as lost once ``LATE_MAX`` later numbers arrived: until then it may be
    late. Older measurements count half after every ``MEMORY`` datagrams, and whenever the owner
    calls ``age``.
    """

    judged: int = 0  # datagrams that were judged to have arrived or to be lost
    lost: int = 0  # datagrams that were judged to be lost

    def __post_init__(self) -> None:
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
        """Let numbers begin anew; keep the measurements."""
        self._top = None

    def age(self) -> None:
        """Count the measurements so far half as much from now on."""
        self._sent = max(self._sent / 2, PRIOR)
        self._missing /= 2
        self._runs /= 2

    def note(self, number: int) -> None:
        """Note that the datagram with ``number`` arrived."""
        top = self._top
        if top is None or number > top + GAP_MAX:
            self._top, self._came, self._in_run = number, (1 << LATE_MAX) - 1, False
            return
        if number <= top:
            self._came |= 1 << (top - number) if top - number < LATE_MAX else 0
            return
        while top < number:
            top += 1
            self._count(bool(self._came >> (LATE_MAX - 1) & 1))
            self._came = (self._came << 1) & ((1 << LATE_MAX) - 1)
        self._came |= 1
        self._top = top

    def _count(self, came: bool) -> None:
        self.judged += 1
        self._sent += 1
        if not came:
            self.lost += 1
            self._missing += 1
            self._runs += not self._in_run
        self._in_run = not came
        if self._sent > MEMORY + PRIOR:
            self.age()


class Coder(Protocol):
    """An erasure code; ``runtime.datagrams.raptor`` provides one.

    It makes repair packets from symbols. All symbols of one window have the same length, a multiple
    of 8. The first packets are the symbols themselves. Any packets should suffice if there are as
    many as symbols; a code that sometimes needs one more returns ``None``.
    """

    def repairs(self, symbols: Sequence[bytes], count: int) -> list[bytes]:
        """Make ``count`` repair packets, each as long as a symbol."""

    def rebuild(self, parts: int, size: int, packets: Mapping[int, bytes]) -> list[bytes] | None:
        """All ``parts`` symbols of a window, ``None``: these packets do not suffice.

        Packets of ``size`` bytes are named by place: symbols first, then repair packets.
        """

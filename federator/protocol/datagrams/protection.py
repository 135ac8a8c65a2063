"""How many repair packets a window needs so that a lost part seldom stays lost.

Every part stands in two windows: that of its own group of parts, and that of the next group, which
looks back. (In three if groups are short; that is not counted on here.) So the link sends A B C D:
the parts of a group, the repair packets of its window, the parts of the next group, and the repair
packets of that one's. A part of A stays lost when B does not mend the first window and D not the
second: each window mends as many losses, of parts and of its own repair packets, as it has repair
packets. The chain of Gilbert and Elliott says how likely both fail. A burst that eats B as well is
mended by D, so looking back costs a wait in the rare case, where one window alone would need twice
the packets in every case.

That case is late all the same, and on a way of several links one link's late parts add to
another's. So the first window alone must not fail too often, either.

Every agent on the way decodes, and makes repair packets for the next link alone. So no link's
redundancy survives beyond it, and the leader's choice in the game of the paper comes down to this:
what its follower loses. See docs/udp-fec.md, "How many, and who decodes".

Source: Esposito 2018, 2 and 3.2; RFC 8681 for windows that slide.
"""

from functools import lru_cache
from typing import Final

from federator.protocol.datagrams.wire import REPAIRS_PER_WINDOW_MAX

PLR_MAX: Final = 0.5
"""On a link that loses more, no redundancy helps: it is not used."""

ABL_MAX: Final = 16.0
_PLR_STEPS = 2_000
_ABL_STEPS = 4

Lost = list[float]
"""How likely so many packets are lost: index by number."""


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
        parts: Parts in the group; in the next one, as many are assumed.
        plr: Share of packets that the link loses.
        abl: How many it loses in a row, on average.
        failing_max: The share of groups of which a part may stay lost.
        repairs_max: No more than this, come what may.
        late_max: The share of groups that their own window may not mend.
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
    """The Gilbert-Elliott model of a link.

    Args:
        plr: Share of packets lost, below 1.
        abl: Packets lost in a row, on average.
    """

    def __init__(self, plr: float, abl: float) -> None:
        self._plr = plr
        self._to_good = 1.0 / abl
        self._to_bad = min(1.0, self._to_good * plr / (1.0 - plr))

    def late_and_lost(self, parts: int, repairs: int) -> tuple[float, float]:
        """P(a group's own window does not mend it), P(a part of it stays lost)."""
        after_a = self.walk(parts, 1.0 - self._plr, self._plr)
        late = total = 0.0
        for state in (0, 1):
            after_b = self.walk(repairs, 1.0 - state, float(state))
            for then in (0, 1):
                later = self.walk(parts + repairs, 1.0 - then, float(then))
                beyond = _tails([g + b for g, b in zip(*later, strict=True)])
                failed_b = _tails(after_b[then])
                for lost in range(1, parts + 1):
                    over = max(0, repairs - lost + 1)  # lost so many more: the window fails
                    if over < len(failed_b):
                        fails = after_a[state][lost] * failed_b[over]
                        late += fails
                        total += fails * beyond[over] if over < len(beyond) else 0.0
        return late, total

    def walk(self, steps: int, good_share: float, bad_share: float) -> tuple[Lost, Lost]:
        """P(k lost in so many packets, and the link then good or bad), from such a beginning."""
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

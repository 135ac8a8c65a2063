"""How many repair packets a block needs so that it seldom fails.

Of parts and repair packets together, a link may eat as many as there are repair packets. The chain
of Gilbert and Elliott says how likely it eats more; that must not be more than ``failing_max``.
With nothing lost that is no packet at all.

Every agent on the way decodes, and makes repair packets for the next link alone. So no link's
redundancy survives beyond it, and the leader's choice in the game of the paper comes down to this:
what its worst follower loses. See docs/udp-fec.md, "How many".

Source: papers/fec-codec-placement.txt, sections 2 and 3.2.
"""

from functools import lru_cache
from typing import Final

from federator.protocol.datagrams.wire import REPAIRS_PER_BLOCK_MAX

PLR_MAX: Final = 0.5
"""On a link that loses more, no redundancy helps: it is not used."""

ABL_MAX: Final = 16.0
_PLR_STEPS = 2_000
_ABL_STEPS = 4


def repairs_for(parts: int, plr: float, abl: float, *, failing_max: float, repairs_max: int) -> int:
    """The least number of repair packets with which a block fails seldom enough.

    Args:
        parts: Parts in the block.
        plr: Share of packets that the link loses.
        abl: How many it loses in a row, on average.
        failing_max: The share of blocks that may lose more than they have repair packets.
        repairs_max: No more than this, come what may.
    """
    plr_step = round(min(plr, PLR_MAX) * _PLR_STEPS)
    abl_step = round(min(max(abl, 1.0), ABL_MAX) * _ABL_STEPS)
    return _needed(parts, plr_step, abl_step, failing_max, min(repairs_max, REPAIRS_PER_BLOCK_MAX))


@lru_cache(maxsize=4_096)
def _needed(parts: int, plr_step: int, abl_step: int, failing_max: float, most: int) -> int:
    if not plr_step:
        return 0
    plr, abl = plr_step / _PLR_STEPS, abl_step / _ABL_STEPS
    for repairs in range(most):
        if sum(lost_distribution(plr, abl, parts + repairs)[repairs + 1 :]) <= failing_max:
            return repairs
    return most


def lost_distribution(plr: float, abl: float, sent: int) -> list[float]:
    """P(exactly k of ``sent`` packets are lost), for k in 0..sent."""
    to_good = 1.0 / abl
    to_bad = min(1.0, to_good * plr / (1.0 - plr))
    good, bad = [0.0] * (sent + 1), [0.0] * (sent + 1)
    good[0], bad[0] = 1.0 - plr, plr
    for _ in range(sent):
        bad = [0.0, *bad[:-1]]
        good, bad = (
            [g * (1.0 - to_bad) + b * to_good for g, b in zip(good, bad, strict=True)],
            [g * to_bad + b * (1.0 - to_good) for g, b in zip(good, bad, strict=True)],
        )
    return [g + b for g, b in zip(good, bad, strict=True)]

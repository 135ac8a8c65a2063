"""The fault classes by name.

No promise is bent by class: the ledger decides message by message what a dead broker took with it,
so classes can be mixed.

Source: testing.md, "Real processes: fault rows"; docs/guarantees.md.
"""

import random
from typing import Final

from federator.grid.chaos.injury import Injury, Kind
from federator.grid.chaos.link_faults import LINK_FAULTS
from federator.grid.chaos.process_faults import PROCESS_FAULTS
from federator.grid.chaos.stage import Stage

QUIET_S: Final = 3.0


def _draw_none(stage: Stage, rng: random.Random) -> Injury:
    async def nothing() -> None: ...

    async def felt() -> bool:
        return True

    hold_s = stage.span_s(rng, (QUIET_S,))
    return Injury("none", frozenset(), "a quiet time", hold_s, nothing, nothing, felt)


KINDS: Final = {
    kind.name: kind
    for kind in (Kind("none", "no fault", _draw_none), *LINK_FAULTS, *PROCESS_FAULTS)
}
"""Every class by name, in the order they are listed."""

MIXED: Final = "mixed"
"""Several classes at once; drawn when not told otherwise."""

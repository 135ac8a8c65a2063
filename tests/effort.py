"""How many seeds a campaign tries, and how many examples a property.

``HYPOTHESIS_PROFILE`` is the one setting. ``script/test`` sets ``usual``: a third of the seeds,
always the same ones, and of the examples; ``script/test --quick`` sets ``quick``: a tenth of both;
``script/test --full`` none.
"""

import os
from typing import Final

SHARES: Final = {"usual": 3, "quick": 10}
PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE", "default")


def seeds(number: int) -> int:
    """How many seeds are tried of a campaign that has ``number``."""
    return -(-number // SHARES.get(PROFILE, 1))

"""How many seeds a campaign tries, and how many examples a property.

``HYPOTHESIS_PROFILE`` is the one setting. ``script/test --quick`` sets ``quick``: a tenth of the
seeds, always the same ones, and ten examples of each property.
"""

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
QUICK = "quick"
QUICK_EXAMPLES = 10
QUICK_SHARE = 10


def seeds(number: int) -> int:
    """How many seeds are tried of a campaign that has ``number``."""
    return -(-number // QUICK_SHARE) if PROFILE == QUICK else number

"""How much a test tries: all of it, or a tenth when somebody waits for the answer.

``HYPOTHESIS_PROFILE=quick``, which ``script/test --quick`` sets, is the one setting: fewer examples
of each property and fewer seeds of each campaign, and always the same ones.
"""

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
QUICK = "quick"
QUICK_EXAMPLES = 10
QUICK_SHARE = 10


def seeds(number: int) -> int:
    """How many seeds of a campaign are tried that has ``number`` of them."""
    return -(-number // QUICK_SHARE) if PROFILE == QUICK else number

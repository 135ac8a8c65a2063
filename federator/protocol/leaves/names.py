"""Names of the small federations that a hub has with its leaves, one with each.

A leaf and its hub form a federation of two: their messages use topics of their own, and signatures
on them are worthless elsewhere. The certificates of all leaves are of one federation, which no
agent of the mesh trusts: so the key of a captured leaf is useless there.
"""

from typing import Final

SUFFIX: Final = ".leaves"


def federation_of_leaf(federation: str, leaf: int) -> str:
    """The federation of leaf ``leaf`` and its hub, for hubs of ``federation``."""
    return f"{federation}{SUFFIX}.{leaf}"


def key_federation(federation: str) -> str:
    """The federation that issues the certificates for members of ``federation``."""
    before, dot, last = federation.rpartition(".")
    return before if dot and last.isdecimal() and before.endswith(SUFFIX) else federation

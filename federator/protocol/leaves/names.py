"""The names of the small federations that a hub has with its leaves, one with each.

A leaf and its hub are a federation of two: what they say has topics of its own, and the signature
on it is worth nothing elsewhere. Their certificates are of one federation for all leaves, which no
agent of the mesh trusts: so the key of a captured leaf opens nothing there.
"""

from typing import Final

SUFFIX: Final = ".leaves"


def federation_of_leaf(federation: str, leaf: int) -> str:
    """What the leaf with that id, of the hubs of ``federation``, and its hub call theirs."""
    return f"{federation}{SUFFIX}.{leaf}"


def key_federation(federation: str) -> str:
    """The federation that certificates of those who speak in ``federation`` are of."""
    before, dot, last = federation.rpartition(".")
    return before if dot and last.isdecimal() and before.endswith(SUFFIX) else federation

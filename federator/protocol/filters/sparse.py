"""Decides when a container that shrank should be rebuilt.

CPython's dictionaries and sets keep their memory when entries are removed, so an hour with 100,000
filters would cost memory for ever. Rebuilding once most of it is unused costs a constant time per
removal.
"""

from collections.abc import Set as AbstractSet
from typing import Any, Final

BYTES_PER_ENTRY: Final = 256
"""A container that grows, or was just rebuilt, has under 100."""

ENTRIES_FREE: Final = 4
"""So few entries that a rebuild is never worth it."""


def is_sparse(container: dict[str, Any] | AbstractSet[str]) -> bool:
    """Whether ``container`` has far more memory than its entries need."""
    return container.__sizeof__() > BYTES_PER_ENTRY * (len(container) + ENTRIES_FREE)

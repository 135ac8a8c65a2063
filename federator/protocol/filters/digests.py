"""Filters as 64-bit numbers, and a set of filters that keeps its digest.

A key names a filter in frames, where eight bytes replace up to 65,535. The XOR of a set's keys is a
digest of the set; a change updates it in time proportional to the change. Cores and members
announce sets of filters as changes plus a digest; while the digests of two neighbours agree neither
sends a list. With n filters in a federation two keys collide with probability about n^2 / 2^65:
3e-10 for 100,000.

Source: docs/protocol.md 5.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from hashlib import blake2b

from federator.protocol.filters.sparse import is_sparse

KEY_BYTES = 8


def filter_key(filter: str) -> int:
    """Return the key of ``filter``, 0 to 2^64 - 1, the same on every machine."""
    return int.from_bytes(blake2b(filter.encode(), digest_size=KEY_BYTES).digest(), "big")


def digest_of(filters: Iterable[str]) -> int:
    """Return the digest of a set of ``filters``, 0 for the empty one. Give each filter once."""
    digest = 0
    for filter in filters:
        digest ^= filter_key(filter)
    return digest


_NONE: dict[str, None] = {}


class DigestedSet:
    """A set of filters with the XOR of their keys, kept up to date.

    Stores no more than the filters and one number; all empty ones share one dictionary. The filters
    are the keys of a dictionary: CPython's garbage collector, which pauses everything, scans every
    set, but no dictionary that contains only untracked objects.
    """

    __slots__ = ("_digest", "_filters")

    def __init__(self, filters: Iterable[str] = ()) -> None:
        self._digest = 0
        self._filters = _NONE
        self.apply(added=filters)

    def apply(self, added: Iterable[str] = (), removed: Iterable[str] = ()) -> None:
        """Remove, then add: a filter in both is in. Repeating a change has no effect."""
        filters = self._filters or dict[str, None]()
        digest = self._digest
        for filter in removed:
            if filter in filters:
                del filters[filter]
                digest ^= filter_key(filter)
        for filter in added:
            if filter not in filters:
                filters[filter] = None
                digest ^= filter_key(filter)
        if is_sparse(filters):
            filters = dict(filters)
        self._filters = filters or _NONE
        self._digest = digest

    @property
    def digest(self) -> int:
        """XOR of the keys of all filters, 0 when empty."""
        return self._digest

    @property
    def count(self) -> int:
        return len(self._filters)

    @property
    def filters(self) -> AbstractSet[str]:
        """The filters; a view of the live set. Copy it to keep it."""
        return self._filters.keys()

    def __contains__(self, filter: object) -> bool:
        return filter in self._filters

    def __len__(self) -> int:
        return len(self._filters)

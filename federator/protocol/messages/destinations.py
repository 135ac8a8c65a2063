"""How a broker announces that it wants a filter over the shortest path, and how frames name it.

A broker under shortest-path routing announces, instead of the filter itself, a **destination
record**: ``$fed/to/<filter>``, a string that no client's topic matches. Every agent learns from it
that the announcer is a destination of the filter, and the announcement that carries it leaves a
shortest path behind. So a parcel service needs the recipient's name only: each depot knows its way.

In frames a destination has a key of its own kind, 2^64 - 2^33 + ``<id>``, just below those of
inboxes. A planned tree by which some destinations are reached has a key just below those, 2^64 -
2^34 + its number. Keys are ascending, so those of filters, on which custody has its chains, come
first.

Source: Chen 2020, 3.2; docs/protocol.md 14 and 18.
"""

from bisect import bisect_left
from collections.abc import Collection
from typing import Final

from federator.protocol.filters import may_travel, validate_filter
from federator.protocol.types import BrokerId

KEY_BYTES: Final = 8
RECORD_BYTES_MAX: Final = 65_535
RESERVED_FROM: Final = 0x3FFFFFFF
"""Keys with all ones in the upper 30 bits name no filters: inboxes, destinations and trees."""

TREE_NUMBERS: Final = 2**33

_TO: Final = "$fed/to/"
_MARK: Final = b"\xff\xff\xff\xfe"
_RESERVED: Final = b"\xff\xff\xff\xfc"
_TREES_BASE: Final = 2**64 - 2**34


def destination_record(filter: str) -> str | None:
    """The record of a broker that wants ``filter``; ``None`` when it would be too long."""
    record = _TO + filter
    return record if len(record.encode()) <= RECORD_BYTES_MAX else None


def is_destination_record(text: str) -> bool:
    """Whether ``text`` looks like a record; records of other brokers were checked on receipt."""
    return text.startswith(_TO)


def destination_filter(record: str) -> str:
    """The filter that the broker wants.

    Raises:
        ValueError: ``record`` is no destination record, or its filter must not travel.
    """
    if not is_destination_record(record):
        raise ValueError(f"{record[:80]!r} is no destination record")
    filter = validate_filter(record[len(_TO) :])
    if not may_travel(filter):
        raise ValueError(f"{filter[:80]!r} must not travel")
    return filter


def destination_key(broker: BrokerId) -> bytes:
    """The key of a destination as it stands in frames."""
    return _MARK + broker.to_bytes(4, "big")


def destination_of(key: bytes) -> BrokerId | None:
    """The broker that a key of a frame names; ``None`` when the key names no destination."""
    return BrokerId(int.from_bytes(key[4:], "big")) if key.startswith(_MARK) else None


def destinations_in(keys: bytes) -> frozenset[BrokerId]:
    """The destinations that the keys of a frame name."""
    at = range(0, len(keys), KEY_BYTES)
    named = (destination_of(keys[start : start + KEY_BYTES]) for start in at)
    return frozenset(broker for broker in named if broker is not None)


def positions_of(destinations: Collection[BrokerId], keys: bytes) -> int:
    """The bits of ``destinations`` in a mask over the keys of a frame."""
    named = set(map(destination_key, destinations))
    count = len(keys) // KEY_BYTES
    return sum(1 << i for i in range(count) if keys[i * KEY_BYTES : (i + 1) * KEY_BYTES] in named)


def tree_key(number: int) -> bytes:
    """The key of the planned tree with that number, in 0..``TREE_NUMBERS`` - 1."""
    return (_TREES_BASE + number).to_bytes(KEY_BYTES, "big")


def is_tree_key(key: bytes) -> bool:
    """Whether a key of a frame names a planned tree."""
    return _RESERVED <= key < _MARK


def names_tree(keys: bytes) -> bool:
    """Whether one of a frame's keys is that of a tree."""
    return any(is_tree_key(keys[at : at + KEY_BYTES]) for at in range(0, len(keys), KEY_BYTES))


def filter_part(keys: bytes) -> bytes:
    """The keys of a frame without those of trees and destinations, which come last."""
    if keys[-KEY_BYTES:] < _RESERVED:
        return keys
    starts = range(0, len(keys), KEY_BYTES)
    return keys[: starts[bisect_left(starts, _RESERVED, key=lambda at: keys[at : at + KEY_BYTES])]]


def outside_reserved(key: int) -> int:
    """``key`` of a filter, moved out of the reserved range: one in 2^30 would be in it."""
    return key ^ 1 << 63 if key >> 34 == RESERVED_FROM else key

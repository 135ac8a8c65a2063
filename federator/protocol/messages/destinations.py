"""How a broker says that it wants a filter over the shortest path, and how frames name it.

A broker under shortest-path routing announces, instead of the filter itself, a **destination
record**: ``$fed/to/<filter>``, a string that no client's topic matches. Everybody learns from it
that the announcer is a destination of the filter, and the announcement that carries it leaves a
shortest path behind. So a parcel service needs the recipient's name only: each depot knows its way.

In frames a destination has a key of a kind of its own, 2^64 - 2^33 + ``<id>``, just below those of
inboxes. Keys are ascending, so those of filters, which custody counts along, come first.

Source: Chen 2020, 3.2; docs/protocol.md 14.
"""

from typing import Final

from federator.protocol.filters import may_travel, validate_filter
from federator.protocol.types import BrokerId

KEY_BYTES: Final = 8
RECORD_BYTES_MAX: Final = 65_535
RESERVED_FROM: Final = 0x7FFFFFFF
"""Keys whose upper 31 bits are all ones name brokers: inboxes and destinations."""

_TO: Final = "$fed/to/"
_MARK: Final = b"\xff\xff\xff\xfe"


def destination_record(filter: str) -> str | None:
    """What a broker announces that wants ``filter``; ``None`` when that would be too long."""
    record = _TO + filter
    return record if len(record.encode()) <= RECORD_BYTES_MAX else None


def is_destination_record(text: str) -> bool:
    """Whether ``text`` looks like a record; what an agent keeps of others was checked before."""
    return text.startswith(_TO)


def destination_filter(record: str) -> str:
    """The filter that is wanted.

    Raises:
        ValueError: ``record`` is no destination record, or its filter stays on one broker.
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
    """The broker that a key of a frame names; ``None`` when it is a filter's or an inbox's."""
    return BrokerId(int.from_bytes(key[4:], "big")) if key.startswith(_MARK) else None


def filter_part(keys: bytes) -> bytes:
    """The keys of a frame without those of destinations, which come last."""
    end = len(keys)
    while end and keys[end - KEY_BYTES : end - KEY_BYTES + len(_MARK)] == _MARK:
        end -= KEY_BYTES
    return keys[:end]


def outside_brokers(key: int) -> int:
    """The key of a filter that names no broker: one in 2^31 would look as if it did."""
    return key ^ 1 << 63 if key >> 33 == RESERVED_FROM else key

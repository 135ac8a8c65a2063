"""What a broker announces about its groups, written as filters that no client can subscribe.

The announcements carry filters to all agents, keep them in step after losses, and notice when the
broker that announced them is gone. A shared group needs exactly that, so a broker announces two
kinds of filters that match no client's topic:

- ``$fed/inbox/<id>``: parcels for broker ``<id>`` are routed by it. Only ``<id>`` announces it, so
  its mesh is the shortest way to one broker.
- ``$fed/members/<id>/<members>/<crossed>/<group>/<filter>``: ``<id>`` has so many members of the
  group. ``crossed`` is 1 while ordinary subscribers of ``<id>`` want topics of ``<filter>`` too.

An inbox has a key of its own kind in frames (the upper half all ones), so that an agent that does
not know groups never takes a parcel for publications.

Source: docs/protocol.md 12.
"""

import re
from dataclasses import dataclass
from typing import Final

from federator.protocol.filters import filter_key, may_travel, validate_filter
from federator.protocol.messages.destinations import outside_reserved
from federator.protocol.types import BROKER_ID_MAX, BrokerId

RECORD_BYTES_MAX: Final = 65_535
MEMBERS_MAX: Final = 2**31 - 1

_INBOX: Final = "$fed/inbox/"
_MEMBERS: Final = "$fed/members/"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_INBOX_MARK: Final = b"\xff\xff\xff\xff"
_INBOX_BASE: Final = 0xFFFFFFFF << 32


@dataclass(frozen=True, slots=True, order=True)
class MemberRecord:
    """Says that a group has ``members`` members at ``broker``."""

    broker: BrokerId
    members: int
    crossed: bool
    group: str
    filter: str

    def encode(self) -> str | None:
        """The record as a filter; ``None`` when it would be too long."""
        head = f"{_MEMBERS}{self.broker}/{self.members}/{int(self.crossed)}/{self.group}/"
        text = head + self.filter
        return text if len(text.encode()) <= RECORD_BYTES_MAX else None


def inbox_filter(broker: BrokerId) -> str:
    """The filter by which parcels for ``broker`` are routed."""
    return f"{_INBOX}{broker}"


def inbox_of(filter: str) -> BrokerId | None:
    if not filter.startswith(_INBOX):
        return None
    number = filter[len(_INBOX) :]
    return BrokerId(int(number)) if _is_id(number) else None


def inbox_key(broker: BrokerId) -> bytes:
    """The key of an inbox as it stands in frames."""
    return _INBOX_MARK + broker.to_bytes(4, "big")


def is_inbox_key(keys: bytes) -> bool:
    """Whether a frame with these keys carries a parcel."""
    return len(keys) == 8 and keys.startswith(_INBOX_MARK)


def frame_key(filter: str) -> int:
    """The key of any filter in frames. Only inboxes have a key in the reserved range."""
    broker = inbox_of(filter)
    if broker is not None:
        return _INBOX_BASE + broker
    return outside_reserved(filter_key(filter))


def parse_record(filter: str) -> MemberRecord | None:
    if not filter.startswith(_MEMBERS):
        return None
    parts = filter[len(_MEMBERS) :].split("/", 4)
    if len(parts) != 5:
        return None
    broker, members, crossed, group, shared = parts
    if not _is_id(broker) or not _NUMBER.fullmatch(members) or crossed not in ("0", "1"):
        return None
    if not 1 <= int(members) <= MEMBERS_MAX:
        return None
    try:
        share_filter(group, shared)
    except ValueError:
        return None
    return MemberRecord(BrokerId(int(broker)), int(members), crossed == "1", group, shared)


def share_filter(group: str, filter: str) -> str:
    """The filter that members of a group subscribe.

    Raises:
        ValueError: No client can be a member of such a group, or its topics must not travel.
    """
    shared = f"$share/{group}/{filter}"
    validate_filter(shared)
    if not may_travel(filter):
        raise ValueError(f"{filter!r} does not travel")
    return shared


def is_record(filter: str) -> bool:
    """Whether ``filter`` is a well-formed group record or inbox."""
    return inbox_of(filter) is not None or parse_record(filter) is not None


def _is_id(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and int(text) <= BROKER_ID_MAX

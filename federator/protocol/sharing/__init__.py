"""Shared subscriptions across brokers: each publication to one member of a group, anywhere.

Every broker with members of a group announces how many; each broker that takes a publication from
a client knows from that who must get it, and sends it to **one** broker with members, as a parcel
that is kept until that broker has it.

Source: docs/protocol.md 12.
"""

from federator.protocol.messages.group_records import (
    MemberRecord,
    frame_key,
    inbox_filter,
    inbox_key,
    inbox_of,
    is_inbox_key,
    is_record,
    parse_record,
    share_filter,
)
from federator.protocol.sharing.assignment import Assignment, Pick, TopicShare
from federator.protocol.sharing.ledger import Held, Ledger, LedgerParameters, Lost, Owed, Resend
from federator.protocol.sharing.membership import (
    ORPHANS_MAX,
    GroupKey,
    Members,
    Membership,
    Orphans,
)
from federator.protocol.sharing.parcels import (
    PARCEL_HEADER_BYTES,
    Arrivals,
    Confirmation,
    Parcel,
    pack_confirmation,
    pack_parcel,
    unpack_parcel,
)
from federator.protocol.sharing.returns import TRIES_MAX, Returns, publication_name

__all__ = [
    "ORPHANS_MAX",
    "PARCEL_HEADER_BYTES",
    "TRIES_MAX",
    "Arrivals",
    "Assignment",
    "Confirmation",
    "GroupKey",
    "Held",
    "Ledger",
    "LedgerParameters",
    "Lost",
    "MemberRecord",
    "Members",
    "Membership",
    "Orphans",
    "Owed",
    "Parcel",
    "Pick",
    "Resend",
    "Returns",
    "TopicShare",
    "frame_key",
    "inbox_filter",
    "inbox_key",
    "inbox_of",
    "is_inbox_key",
    "is_record",
    "pack_confirmation",
    "pack_parcel",
    "parse_record",
    "publication_name",
    "share_filter",
    "unpack_parcel",
]

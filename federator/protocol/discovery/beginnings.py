"""Filters that the broker's log cut off, because its lines end after a fixed number of bytes.

Source: docs/protocol.md 9.
"""

from federator.protocol.discovery.interest import MATCH_ALL
from federator.protocol.filters import without_share

CUT_MARK = "\0"
"""Ends the stored beginning of a filter that the log cut; cannot occur in a filter."""


def is_shared(filter: str) -> bool:
    """Whether the broker counts ``filter`` under ``shared_subscriptions``."""
    return filter.startswith("$share/")


def widened(beginning: str) -> str:
    """The narrowest filter that covers every filter with this marked beginning."""
    plain = without_share(beginning.removesuffix(CUT_MARK))
    whole_levels, slash, _ = plain.rpartition("/")
    return f"{whole_levels}/#" if slash else MATCH_ALL


def may_be(beginning: str, named: str) -> bool:
    """Whether a filter with this marked beginning can be ``named``, which may itself be cut."""
    held, named = beginning.removesuffix(CUT_MARK), named.removesuffix(CUT_MARK)
    return named.startswith(held) or held.startswith(named)

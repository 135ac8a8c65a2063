"""Topic filters: syntax, matching, and sets of them."""

from federator.protocol.filters.algebra import canonical, contains, join, matches, overlaps
from federator.protocol.filters.cover import Cover, CoverChange
from federator.protocol.filters.digests import DigestedSet, digest_of, filter_key
from federator.protocol.filters.syntax import (
    LEVELS_MAX,
    SHARE,
    is_match_all,
    may_travel,
    share_of,
    unwelcome_in,
    validate_filter,
    validate_topic,
    without_share,
)
from federator.protocol.filters.trie import FilterTrie

__all__ = [
    "LEVELS_MAX",
    "SHARE",
    "Cover",
    "CoverChange",
    "DigestedSet",
    "FilterTrie",
    "canonical",
    "contains",
    "digest_of",
    "filter_key",
    "is_match_all",
    "join",
    "matches",
    "may_travel",
    "overlaps",
    "share_of",
    "unwelcome_in",
    "validate_filter",
    "validate_topic",
    "without_share",
]

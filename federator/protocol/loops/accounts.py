"""Accounts of an established loop: each publication let through comes back once.

Like a cloakroom: for each coat handed in there is one ticket. A publication that is let in, or
delivered here, is expected back within some time; an expected publication is a copy and is not let
in again. Equal publications are interchangeable, so it does not matter which of two counts as the
copy.

Source: docs/rules.md 4.
"""

from collections.abc import Hashable

from federator.protocol.bounded_cache import Recent
from federator.protocol.types import Millis

EXPECTED_MAX = 65_536
"""Different publications expected back; the oldest are dropped, and let in once more."""

Digest = Hashable
"""A digest of the topic and payload of a publication."""


class LoopAccounts:
    """Publications that are expected back, each for ``window_ms``."""

    def __init__(self, *, window_ms: int) -> None:
        self._window_ms = window_ms
        # Number of copies, and until when.
        self._expected: Recent[Digest, tuple[int, Millis]] = Recent(EXPECTED_MAX)

    def __len__(self) -> int:
        return len(self._expected)

    def expect(self, digest: Digest, *, delivered: bool = False, now_ms: Millis) -> None:
        """Expect one more copy of an accepted publication, or at least one of a ``delivered`` one.

        A delivery does not add one each time: perhaps the bridge goes one way only.
        """
        count, until_ms = self._expected.get(digest, (0, now_ms))
        count = count if until_ms >= now_ms else 0
        count = max(count, 1) if delivered else count + 1
        self._expected.put(digest, (count, Millis(now_ms + self._window_ms)))

    def take(self, digest: Digest, *, now_ms: Millis) -> bool:
        """Whether this publication is expected; if so, one copy fewer is expected."""
        count, until_ms = self._expected.pop(digest, (0, now_ms))
        if not count or until_ms < now_ms:
            return False
        if count > 1:
            self._expected[digest] = count - 1, until_ms
        return True

    def clear(self) -> None:
        """Expect nothing any longer."""
        self._expected.clear()

"""Groups whose members all went out of reach without leaving.

Nobody gave such a group up, so it is still owed what is published meanwhile: for a while it is
wanted as before, and publications are held until members are heard of again. The same holds for
what an agent knew before it was restarted.

Source: docs/protocol.md section 12.
"""

from collections.abc import Iterable
from typing import Final

from federator.protocol.sharing.membership import GroupKey
from federator.protocol.types import Millis

ORPHANS_MAX: Final = 10_000


class Orphans:
    """Such groups, each for ``keep_ms``; the oldest goes when there are too many."""

    def __init__(self, *, keep_ms: int, orphans_max: int = ORPHANS_MAX) -> None:
        self._keep_ms = keep_ms
        self._orphans_max = orphans_max
        self._until_ms: dict[GroupKey, Millis] = {}  # in the order lost

    @property
    def groups(self) -> frozenset[GroupKey]:
        """All of them."""
        return frozenset(self._until_ms)

    def lose(self, key: GroupKey, *, now_ms: Millis) -> None:
        """The last members of ``key`` went out of reach."""
        self._until_ms.pop(key, None)
        self._until_ms[key] = Millis(now_ms + self._keep_ms)
        if len(self._until_ms) > self._orphans_max:
            del self._until_ms[next(iter(self._until_ms))]

    def find(self, keys: Iterable[GroupKey]) -> None:
        """These have members, or were given up."""
        for key in keys:
            self._until_ms.pop(key, None)

    def next_deadline_ms(self) -> Millis | None:
        """When ``expire`` is due."""
        return next(iter(self._until_ms.values()), None)

    def expire(self, *, now_ms: Millis) -> bool:
        """Forget those kept long enough; whether there were any."""
        old = [key for key, until_ms in self._until_ms.items() if until_ms <= now_ms]
        self.find(old)
        return bool(old)

"""Saying a thing once in a while, however often there is a reason to.

Source: docs/protocol.md section 2 (bounds).
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from federator.protocol.types import Millis

K = TypeVar("K", bound=Hashable)


class Repeats(Generic[K]):
    """Which things were said lately.

    Args:
        gap_ms: Least time before the same thing may be said again.
        keys_max: Things remembered; the one said longest ago is forgotten first.
    """

    def __init__(self, *, gap_ms: Millis, keys_max: int) -> None:
        self._gap_ms = gap_ms
        self._keys_max = keys_max
        self._said_at_ms: OrderedDict[K, Millis] = OrderedDict()

    def __len__(self) -> int:
        return len(self._said_at_ms)

    def allow(self, key: K, now_ms: Millis) -> bool:
        """Whether ``key`` may be said now; noted as said when it may."""
        last_ms = self._said_at_ms.get(key)
        if last_ms is not None and now_ms - last_ms < self._gap_ms:
            return False
        self._said_at_ms[key] = now_ms
        self._said_at_ms.move_to_end(key)
        if len(self._said_at_ms) > self._keys_max:
            self._said_at_ms.popitem(last=False)
        return True

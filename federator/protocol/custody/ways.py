"""Which neighbours brought an origin's frames lately: requests go the way that frames came.

A neighbour may bring what it made up, and swallow the request. So the next request goes to another
one of them, while what is missing does not come.

Source: docs/protocol.md section 11.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from federator.protocol.types import BrokerId, Millis

ORIGINS_MAX: Final = 4_096
WAYS_MAX: Final = 8
FRESH_MS: Final = 15_000
"""How much older than the newest a way may be: an origin repeats its tails every 10 s."""


@dataclass(slots=True)
class _Way:
    heard_ms: dict[BrokerId, Millis] = field(default_factory=dict)  # the newest last
    turn: int = 0


class Ways:
    """The ways to all origins."""

    def __init__(self) -> None:
        self._ways: OrderedDict[BrokerId, _Way] = OrderedDict()

    def heard(self, origin: BrokerId, sender: BrokerId, now_ms: Millis) -> None:
        """The neighbour ``sender`` brought a frame of ``origin`` before all others."""
        way = self._ways.get(origin)
        if way is None:
            way = self._ways[origin] = _Way()
            if len(self._ways) > ORIGINS_MAX:
                self._ways.popitem(last=False)
        heard = way.heard_ms
        heard.pop(sender, None)
        heard[sender] = now_ms
        if len(heard) > WAYS_MAX:
            del heard[next(iter(heard))]

    def all(self, origin: BrokerId, *, but: Collection[BrokerId] = ()) -> list[BrokerId]:
        """The ways to ``origin``, the newest first."""
        way = self._ways.get(origin)
        if way is None:
            return []
        heard = way.heard_ms
        newest_ms = next(reversed(heard.values()))
        fresh = (n for n in reversed(heard) if newest_ms - heard[n] <= FRESH_MS)
        return [neighbour for neighbour in fresh if neighbour not in but]

    def next(
        self, origin: BrokerId, *, again: bool, but: Collection[BrokerId] = ()
    ) -> BrokerId | None:
        """The way of the next request: the newest, or ``again`` each one in turn."""
        ways = self.all(origin, but=but)
        if not ways:
            return None
        way = self._ways[origin]
        way.turn = way.turn + 1 if again else 0
        return ways[way.turn % len(ways)]

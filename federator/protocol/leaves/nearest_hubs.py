"""Chooses two of a leaf's possible hubs: near ones, and of these the least loaded.

The operator of a leaf lists all hubs that accept it. The leaf measures the round trip and the
number of leaves of each, takes two, and stays with them: it replaces a hub that is gone for a while
when the other one serves, or a hub that does not serve when another is half as far. A leaf that has
lost both waits for them as long as they may keep anything for it.

Source: docs/hubs.md.
"""

import hashlib
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from federator.protocol.types import BrokerId, Millis

HUBS_TAKEN: Final = 2

FAR: Final = 2
"""A hub is nearer than another that is so many times as far; otherwise load decides."""

NEAR_MS: Final = 10.0
"""Up to here all hubs count as near: a busy machine adds about as much."""

AGAIN_MS: Final = 30_000
"""Between two searches for a hub to replace one that is gone."""


@dataclass(frozen=True, slots=True)
class SeenHub:
    """A hub that answered: its round trip, and the number of leaves that it serves."""

    id: BrokerId
    round_trip_ms: float
    leaves: int


def best_of(seen: Iterable[SeenHub], leaf: BrokerId, count: int = HUBS_TAKEN) -> list[SeenHub]:
    """The ``count`` best, the best first.

    Among equal hubs each leaf prefers another one, so that many leaves that start together spread.
    """
    left, best = list(seen), list[SeenHub]()
    while left and len(best) < count:
        nearest = min(left, key=lambda hub: hub.round_trip_ms)
        near = [hub for hub in left if not _is_nearer(nearest, hub)]
        best.append(min(near, key=lambda hub: (hub.leaves, _lot(leaf, hub.id))))
        left.remove(best[-1])
    return best


def _is_nearer(hub: SeenHub, other: SeenHub) -> bool:
    return other.round_trip_ms > max(NEAR_MS, FAR * hub.round_trip_ms)


def _lot(leaf: BrokerId, hub: BrokerId) -> bytes:
    return hashlib.blake2b(b"%d %d" % (leaf, hub), digest_size=8).digest()


def kept_of(taken: Iterable[BrokerId], known: Sequence[BrokerId]) -> list[BrokerId]:
    """The hubs that a leaf with ``taken`` takes of ``known``: those still known, then others."""
    kept = [hub for hub in taken if hub in known]
    return [*kept, *(hub for hub in known if hub not in kept)][:HUBS_TAKEN]


class NearestHubs:
    """The hubs that one leaf has taken, and when it looks for others.

    Args:
        known: All hubs that accept the leaf.
        taken: The hubs taken before our restart, the preferred one first.
        patience_ms: How long a hub is gone before another one replaces it.
        keep_ms: How long hubs may keep messages for us, when both are gone.
        exchange_ms: Between two searches for nearer ones.

    Attributes:
        taken: Some of ``known``, the preferred one first.
    """

    def __init__(
        self,
        known: Sequence[BrokerId],
        leaf: BrokerId,
        *,
        taken: Sequence[BrokerId] = (),
        patience_ms: int,
        keep_ms: int,
        exchange_ms: int,
        now_ms: Millis,
    ) -> None:
        self.taken: tuple[BrokerId, ...] = ()
        self._leaf = leaf
        self._patience_ms, self._keep_ms = patience_ms, keep_ms
        self._exchange_ms = exchange_ms
        self._up_ms: dict[BrokerId, Millis] = {}  # when each link was last up
        self._used = {*taken}  # hubs that may keep messages for us
        self._look_ms = Millis(now_ms + exchange_ms)  # the next search for a nearer hub
        self._again_ms = now_ms  # no earlier search for a replacement
        self.know(known, kept_of(taken, known), now_ms)

    def know(self, known: Sequence[BrokerId], taken: Sequence[BrokerId], now_ms: Millis) -> None:
        """Replace the known and the taken hubs; see ``kept_of``."""
        self.known = tuple(known)
        self._take(taken, now_ms)

    def start(self, seen: Iterable[SeenHub], now_ms: Millis) -> None:
        """At the first start, take the best of the hubs that answer."""
        best = [hub.id for hub in best_of(seen, self._leaf)]
        self._take(kept_of(best, self.known), now_ms)

    def is_due(self, up: AbstractSet[BrokerId], now_ms: Millis) -> bool:
        """Whether to measure all hubs now; ``up``: those with links that are up."""
        for hub in up & {*self.taken}:
            self._up_ms[hub] = now_ms
            self._used.add(hub)
        if len(self.known) <= len(self.taken):
            return False
        if now_ms >= self._look_ms:
            return True
        return now_ms >= self._again_ms and bool(self._gone(up, now_ms))

    def on_seen(
        self,
        seen: Iterable[SeenHub],
        up: AbstractSet[BrokerId],
        served_by: BrokerId | None,
        now_ms: Millis,
    ) -> bool:
        """Handle the measurements; return whether the taken hubs changed."""
        self._again_ms = Millis(now_ms + AGAIN_MS)
        self._look_ms = Millis(now_ms + self._exchange_ms)
        everyone = there = {answer.id: answer for answer in seen}
        gone = self._gone(up, now_ms)
        stays = [hub for hub in self.taken if hub not in gone]
        if not gone:
            reserve = next((hub for hub in self.taken if hub != served_by), None)
            if reserve not in there or served_by not in up:
                return False
            there = {id: s for id, s in everyone.items() if _is_nearer(s, there[reserve])}
            stays = [hub for hub in self.taken if hub != reserve]
        fresh = [answer for id, answer in there.items() if id not in self.taken]
        best = best_of(fresh, self._leaf, HUBS_TAKEN - len(stays))
        if not best:
            return False
        kept = [hub for hub in self.taken if hub not in stays][len(best) :]
        came = [answer.id for answer in best]
        serving = everyone.get(stays[0]) if stays else None
        nearer = serving is not None and _is_nearer(best[0], serving)
        self._take([*came, *stays, *kept] if nearer else [*stays, *came, *kept], now_ms)
        return True

    def _gone(self, up: AbstractSet[BrokerId], now_ms: Millis) -> list[BrokerId]:
        """Taken hubs that may be replaced."""
        waits = set() if up & {*self.taken} else self._used

        def patience_ms(hub: BrokerId) -> int:
            return self._keep_ms if hub in waits else self._patience_ms

        away = [hub for hub in self.taken if hub not in up]
        return [hub for hub in away if now_ms >= self._up_ms[hub] + patience_ms(hub)]

    def _take(self, hubs: Sequence[BrokerId], now_ms: Millis) -> None:
        self.taken = tuple(hubs)
        self._up_ms = {hub: self._up_ms.get(hub, now_ms) for hub in hubs}

"""Finds topics on which publications arrive and are delivered in turns, by an unknown bridge.

Like a tennis ball seen from the net, which flies to and fro: what a bridge of both directions leads
round passes an agent twice each time: it arrives as if from a client, and we deliver an equal one
that went round the other way. Clients of our broker alone cause only arrivals, however often they
repeat themselves and whatever they wait for. So **turns**, in quick succession, are the reason to
test a topic (``detection``); repetitions are not while no bridge is known.

Observing now and then (a *glance*) is enough, because a loop runs all the time.

Source: docs/rules.md 3.
"""

from dataclasses import dataclass

from federator.protocol.bounded_cache import Recent
from federator.protocol.loops.accounts import Digest
from federator.protocol.types import Millis

GLANCE_MS, GLANCE_EVERY_MS = 2_000, 20_000
"""How long a glance is, and from one to the next."""

SIGHTS_MAX, TOPICS_MAX = 65_536, 8_192
"""Publications remembered, and topics with turns; the oldest are dropped."""


def glances(now_ms: Millis) -> bool:
    """Whether it is time for a glance."""
    return now_ms % GLANCE_EVERY_MS < GLANCE_MS


@dataclass(slots=True)
class _Sight:
    at_ms: Millis
    delivered: bool
    turns: int = 0


class Turns:
    """Counts how often equal publications arrived and were delivered, in turns."""

    def __init__(self, *, gap_ms_max: int, turns_min: int) -> None:
        self._gap_ms_max = gap_ms_max  # between two turns
        self._turns_min = turns_min  # turns that make a topic suspicious
        self._sights: Recent[Digest, _Sight] = Recent(SIGHTS_MAX)
        self._topics: Recent[str, None] = Recent(TOPICS_MAX)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def see(self, topic: str, digest: Digest, *, delivered: bool, now_ms: Millis) -> bool:
        """Record an arrived or delivered publication; return whether ``topic`` is suspicious."""
        sight = self._sights.get(digest)
        if sight is None or now_ms - sight.at_ms > self._gap_ms_max:
            self._sights.put(digest, _Sight(now_ms, delivered))
            return False
        if delivered is not sight.delivered:
            sight.turns += 1
            sight.at_ms, sight.delivered = now_ms, delivered
        if sight.turns < self._turns_min:
            return False
        self._topics.put(topic, None)
        return True

    def forget(self) -> None:
        """Forget all publications and topics."""
        self._sights.clear()
        self._topics.clear()

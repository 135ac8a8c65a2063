"""Remembers for a moment whose hellos were not believed, so that an operator is told why.

What is not believed may say anything, so this is for people only: who is named, and from where, is
what the message says itself. Anybody may send any number of them; few a second are looked at, and
few are remembered, for a short time.

Source: docs/observability.md, "Alone, partly, joined, degraded".
"""

from collections.abc import Mapping
from typing import Final

from federator.errors import DecodeError
from federator.protocol.bounded_cache import Recent
from federator.protocol.links.standing import TurnedAway
from federator.protocol.messages.codec import HELLO
from federator.protocol.messages.control import Hello
from federator.protocol.rate_limiter import TokenBucket
from federator.protocol.trust.guard import overheard, overheard_hello
from federator.protocol.types import BrokerId, Millis

REMEMBERED_MS: Final = 15_000
"""Some hellos, and a long pause."""

REMEMBERED_MAX: Final = 64
LOOKED_AT_PER_S: Final = 16


def reads_as_signed(payload: bytes) -> str | None:
    """``signed`` or ``sealed`` when a message comes from an agent with keys; ``None``: it is open.

    For agents without keys, to whom such a message is no message at all.
    """
    try:
        manner, _ = overheard(payload)
    except DecodeError:
        return None
    return None if manner == "open" else manner


class TurnedAwayLog:
    """Whose hellos one agent turned away lately."""

    def __init__(self) -> None:
        self._known: Recent[BrokerId, tuple[TurnedAway, Millis]] = Recent(REMEMBERED_MAX)
        self._looks = TokenBucket(LOOKED_AT_PER_S)

    def note(self, kind: str, payload: bytes, reason: str, *, now_ms: Millis) -> Hello | None:
        """Look whose message was turned away, if it is a hello; what it says, if it can be read."""
        if kind != HELLO or not self._looks.take(now_ms):
            return None
        said = overheard_hello(payload)
        if said is not None:
            self._known.put(said.sender, (TurnedAway(said.sender, said.address, reason), now_ms))
        return said

    def lately(self, now_ms: Millis) -> Mapping[BrokerId, TurnedAway]:
        """The newest of each broker."""
        return {
            id_: turned
            for id_, (turned, at_ms) in self._known.items()
            if now_ms - at_ms < REMEMBERED_MS
        }

"""Remembers for a moment which hellos were refused, so that an operator learns why.

A refused message may contain anything, so this is for people only: sender and address are as the
message claims. Any client may send any number; few a second are read, and few are remembered, for a
short time.

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
"""Several hello intervals, and a long pause."""

REMEMBERED_MAX: Final = 64
LOOKED_AT_PER_S: Final = 16


def reads_as_signed(payload: bytes) -> str | None:
    """``signed`` or ``sealed`` if a message comes from an agent with keys; ``None`` if it is open.

    For agents without keys, which cannot decode such a message.
    """
    try:
        manner, _ = overheard(payload)
    except DecodeError:
        return None
    return None if manner == "open" else manner


class TurnedAwayLog:
    """The hellos that one agent refused lately."""

    def __init__(self) -> None:
        self._recent: Recent[BrokerId, tuple[TurnedAway, Millis]] = Recent(REMEMBERED_MAX)
        self._looks = TokenBucket(LOOKED_AT_PER_S)

    def note(self, kind: str, payload: bytes, reason: str, *, now_ms: Millis) -> Hello | None:
        """Note the sender of a refused hello; return the hello if it can be read."""
        if kind != HELLO or not self._looks.take(now_ms):
            return None
        hello = overheard_hello(payload)
        if hello is not None:
            self._recent.put(
                hello.sender, (TurnedAway(hello.sender, hello.address, reason), now_ms)
            )
        return hello

    def lately(self, now_ms: Millis) -> Mapping[BrokerId, TurnedAway]:
        """The newest refusal of each broker."""
        return {
            id_: turned
            for id_, (turned, at_ms) in self._recent.items()
            if now_ms - at_ms < REMEMBERED_MS
        }

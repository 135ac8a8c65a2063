"""How requests reach every agent once, and letters find their way back.

A request is flooded: it collects the ids that it passes, so an agent that answers has a way back,
and the agents on that way need not remember anything (as in dynamic source routing). If a letter is
lost on the way, the broker that misses it asks again.

Source: RFC 4728, 3.1; docs/protocol.md 13.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from federator.protocol.bounded_cache import Recent
from federator.protocol.messages.control import (
    PATH_MAX,
    RetainedBody,
    RetainedLetter,
    RetainedRequest,
)
from federator.protocol.rate_limiter import TokenBucket
from federator.protocol.types import BrokerId, Millis

SEEN_MAX = 4_096
"""Requests remembered, so that each is handled once."""

FLOODED_PER_S = 200
"""Requests of others forwarded per second, and at once."""


@dataclass(eq=False)
class RetainedPost:
    """Forwards the requests and letters that reach one agent."""

    self_id: BrokerId
    withheld: int = 0  # requests not forwarded, because too many came
    lost: int = 0  # letters that came by a wrong way

    def __post_init__(self) -> None:
        self._seen: Recent[tuple[BrokerId, int, int], None] = Recent(SEEN_MAX)
        self._flooding = TokenBucket(FLOODED_PER_S)

    def on_request(
        self, request: RetainedRequest, neighbours: Iterable[BrokerId], *, now_ms: Millis
    ) -> tuple[bool, RetainedRequest | None, list[BrokerId]]:
        """Handle a request from a live neighbour.

        Returns:
            Whether it is new, the request to forward (if any), and the neighbours that get it.
        """
        path = request.path
        asker = path[0]
        key = (asker, request.epoch, request.number)
        if self.self_id in path or path[-1] != request.sender or key in self._seen:
            return False, None, []
        self._seen.put(key, None)
        if len(path) + 1 >= PATH_MAX:
            # With one more broker the way back would be too long for a letter.
            return True, None, []
        if not self._flooding.take(now_ms):
            self.withheld += 1
            return True, None, []
        onward = msgspec.structs.replace(request, sender=self.self_id, path=(*path, self.self_id))
        return True, onward, sorted(set(neighbours).difference(path))

    def on_letter(self, letter: RetainedLetter) -> tuple[bool, RetainedLetter | None]:
        """Whether the letter is for us, or the one to forward to ``route[at + 1]``."""
        at, route = letter.at + 1, letter.route
        if at >= len(route) or route[at] != self.self_id or route[letter.at] != letter.sender:
            self.lost += 1
            return False, None
        if at == len(route) - 1:
            return True, None
        return False, msgspec.structs.replace(letter, sender=self.self_id, at=at)

    def write(self, body: RetainedBody, way: tuple[BrokerId, ...]) -> RetainedLetter:
        """A letter along ``way``, which begins with us."""
        return RetainedLetter(self.self_id, way, 0, body)


def way_back(request: RetainedRequest, self_id: BrokerId) -> tuple[BrokerId, ...]:
    """The way from us to the asker."""
    return (self_id, *reversed(request.path))


def way_to_sender(letter: RetainedLetter) -> tuple[BrokerId, ...]:
    """The way from us, the addressee, to the sender."""
    return tuple(reversed(letter.route))

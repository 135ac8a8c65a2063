"""Fetches, for a gateway, what was published on some filters before its clients came here.

A client that a gateway moved here lacks what its dead broker still had for it, and what was
published before its subscription stood on our broker. Its gateway asks us. From then on our own
chains bring what follows, so we only look for what lies before:

- on a chain that is followed already, frames up to its position when we were asked;
- on one that begins later, what its origin made before we were asked, by the origin's clock: a
  chain of a key that was asked about begins just there (``Followed.expect``).

So no frame that we return also reaches our clients by itself. (A reader moves house: from the day
of the order the new newsagent delivers; the issues before are ordered once, by letter.)

Source: docs/protocol.md sections 11 and 15; docs/gateway.md, "What a client missed".
"""

from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Final

from federator.protocol.custody.chains import Ask, Chained, Placed
from federator.protocol.custody.receiver import Receiver
from federator.protocol.forwarding.frames import REPAIR_FLAG, Frame
from federator.protocol.types import BrokerId, Millis, Now

RETRIEVAL_MS: Final = 8_000
"""For how long we wait for chains: finding the ways around a dead broker takes a moment."""

RETRIEVALS_MAX: Final = 16
HELD_BYTES_MAX: Final = 1_048_576
CHAINS_MAX: Final = 4_096


class Retrieval:
    """One question of a gateway, while it is open.

    Args:
        main: The receiver for our clients' subscriptions; it has taken each frame before us.
        keys: Of the filters in question.
        since_us: Our wall clock; origins' are taken to agree with it.
        tell: Takes the retrieved frames, in order.

    Attributes:
        receiver: A receiver with room of its own, for the frames in question.
        ends_ms: When the gateway stops waiting.
    """

    def __init__(
        self,
        main: Receiver,
        keys: Collection[bytes],
        *,
        since_us: int,
        tell: Callable[[Frame], None],
        now: Now,
    ) -> None:
        self.receiver = Receiver(held_bytes_max=HELD_BYTES_MAX, chains_max=CHAINS_MAX)
        self.ends_ms = Millis(now.ms + RETRIEVAL_MS)
        self._main = main
        self._send = tell
        # By (origin, key): the greatest number, and the time of the origin, up to which we ask.
        self._limits: dict[tuple[BrokerId, bytes], tuple[int, int]] = {}
        for key in keys:
            self.receiver.want(key, since_us=since_us)
            self.receiver.expect(key, since_us=since_us, now_us=now.us)
        for origin, epoch, key, chain in islice(main.standing({*keys}), CHAINS_MAX):
            self._limit(origin, key, chain.last or 0)
            until = chain.last or chain.target
            self.receiver.look_back(origin, epoch, key, until, since_us, now.ms)

    def arrive(self, placed: Placed, now: Now) -> None:
        """Take a frame for those of its chains that are being retrieved."""
        frame, wants = placed.frame, self.receiver.wants
        links = tuple(c for c in placed.links if wants(c.key) and self._is_asked(frame, c))
        if links:
            self._give(self.receiver.arrive(Placed(frame, links), now))

    def tail(self, placed: Placed, now: Now) -> None:
        """Handle a tail of a silent origin: it may be the first sign of a chain."""
        frame, links = placed.frame, []
        for link in placed.links:
            is_new = (frame.origin, link.key) not in self._limits
            if is_new and self.receiver.wants(link.key) and len(self._limits) < CHAINS_MAX:
                self._limit(frame.origin, link.key, link.prev)
                links.append(link)
        if links:
            self.receiver.tail(Placed(frame, tuple(links)), now)

    def skip(self, frame: Frame, now_ms: Millis) -> None:
        """Skip missing numbers as ``Receiver.skip`` does."""
        self._give(self.receiver.skip(frame, now_ms))

    def asks(self, now_ms: Millis) -> list[Ask]:
        return self.receiver.asks(now_ms)

    def _is_asked(self, frame: Frame, link: Chained) -> bool:
        """Whether the frame is of use: requested, or the first of a new chain."""
        at = frame.origin, link.key
        if at not in self._limits:
            if len(self._limits) >= CHAINS_MAX:
                return False
            self._limit(*at, link.prev)
            return True
        return bool(frame.flags & REPAIR_FLAG) or self._is_before(frame, link.key)

    def _limit(self, origin: BrokerId, key: bytes, through: int) -> None:
        """Note up to which number, or time, the frames of a chain will not come by themselves."""
        chain = self._main.chain(origin, key)
        begins = chain is not None and chain.last is None
        self._limits[origin, key] = (0, chain.not_before_us) if begins and chain else (through, 0)

    def _is_before(self, frame: Frame, key: bytes) -> bool:
        through, before_us = self._limits.get((frame.origin, key), (0, 0))
        return frame.seq <= through or frame.origin_time_us < before_us

    def _give(self, due: Iterable[Placed]) -> None:
        for placed in due:
            if any(self._is_before(placed.frame, key) for key, _ in placed.links):
                self._send(placed.frame)

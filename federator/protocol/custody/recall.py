"""Fetching again what was delivered here already, for clients that came after it.

When we step in for a broker that died, its clients' sessions begin here some time after its death.
What was published in between, and that nobody here wanted, the receiver asks for as a beginning.
But what others here wanted, by the same filter or by one that overlaps, was delivered before those
clients had a session: it is fetched a second time, from each origin's log, up to where the receiver
stood.

It is a second receiver that follows the recalled filters only, and only up to there. Whoever
subscribed all along gets these frames twice. A chain that brings nothing new any more is done.

Source: docs/protocol.md sections 11.8 and 15; docs/failover.md.
"""

from collections.abc import Iterable
from typing import Generic

from federator.protocol.custody.chains import Ask, Chained, Delivery, F
from federator.protocol.custody.ports import Positions
from federator.protocol.custody.receiver import Receiver
from federator.protocol.types import BrokerId, Millis

PATIENCE_MS = 60_000
"""A recall that is not complete by then is given up: its origin is out of reach."""

ASKED_IN_VAIN_MAX = 3
"""Times that a chain is asked for without anything new: then there is nothing more."""

CHAINS_MAX = 65_536
"""Filters times origins; of more, those asked for last are not recalled."""


class Recall(Generic[F]):
    """What is being fetched again.

    Attributes:
        receiver: Follows the recalled chains: it gets what is ``recalled``, and ``taken`` gets what
            it delivers. Its room is its own.
    """

    def __init__(self, receiver: Receiver[F]) -> None:
        self.receiver = receiver
        self._until: dict[tuple[BrokerId, bytes], int] = {}  # where each chain's recall ends
        self._asked: dict[tuple[BrokerId, bytes], tuple[int, int]] = {}  # after what, how often
        self._given_up_ms = Millis(0)

    def __len__(self) -> int:
        """Chains whose recall is not complete."""
        return len(self._until)

    def begin(
        self,
        positions: Positions,
        keys: Iterable[bytes],
        *,
        since_us: int,
        now_ms: Millis,
    ) -> None:
        """Fetch what was made on ``keys`` since ``since_us``, up to ``positions``.

        Origins' wall clocks are taken to agree with ours.
        """
        self._given_up_ms = Millis(now_ms + PATIENCE_MS)
        newest: dict[BrokerId, tuple[int, int]] = {}
        for (origin, _), position in positions.items():
            newest[origin] = max(newest.get(origin, (0, 0)), position)
        for key in sorted(set(keys)):
            for origin, (epoch, last) in sorted(newest.items()):
                if not last or (origin, key) in self._until or len(self._until) >= CHAINS_MAX:
                    continue
                self._until[origin, key] = last
                self.receiver.want(key, since_us=since_us)
                self.receiver.look_back(
                    origin, epoch, key, last, not_before_us=since_us, now_ms=now_ms
                )

    def recalled(
        self, origin: BrokerId, seq: int, links: tuple[Chained, ...]
    ) -> tuple[Chained, ...]:
        """Those of ``links`` on whose chains the frame ``seq`` is fetched again."""
        return tuple(link for link in links if seq <= self._until.get((origin, link.key), 0))

    def taken(self, due: list[Delivery[F]]) -> list[Delivery[F]]:
        """Forget chains that are as far as the main receiver was; return what came."""
        for (origin, key), (_, last) in self.receiver.positions().items():
            if last >= self._until.get((origin, key), 0):
                self._end(origin, key)
        return due

    def skip(
        self, origin: BrokerId, epoch: int, key: bytes, through: int, *, now_ms: Millis
    ) -> list[Delivery[F]]:
        """The origin has nothing for us on a chain up to ``through``."""
        if (origin, key) not in self._until:
            return []
        return self.taken(self.receiver.skip(origin, epoch, key, through, now_ms=now_ms))

    def asks(self, now_ms: Millis) -> list[Ask]:
        """What to ask for now."""
        if self._until and now_ms >= self._given_up_ms:
            self._until.clear()
            self._asked.clear()
            for key in list(self.receiver.since_us):
                self.receiver.unwant(key)
        asks = self.receiver.asks(now_ms)
        answered = self.receiver.positions()
        for ask in asks:
            for chain in ask.chains:
                at = (ask.origin, chain.key)
                after, times = self._asked.get(at, (-1, 0))
                self._asked[at] = (chain.after, times + 1 if after == chain.after else 1)
                if self._asked[at][1] > ASKED_IN_VAIN_MAX and at in answered:
                    self._end(*at)
        return asks

    def _end(self, origin: BrokerId, key: bytes) -> None:
        self._until.pop((origin, key), None)
        self._asked.pop((origin, key), None)
        self.receiver.leave(origin, key)
        if all(key != other for _, other in self._until):
            self.receiver.unwant(key)

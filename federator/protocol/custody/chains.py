"""What a receiver remembers: a number for each chain, and the frames that wait for earlier ones.

Source: docs/protocol.md section 11.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from federator.protocol.bounded_cache import Recent
from federator.protocol.custody.doubts import Doubted
from federator.protocol.custody.ports import UNDO_MAX
from federator.protocol.forwarding.frames import Frame
from federator.protocol.messages.control import AskedChain
from federator.protocol.types import BrokerId, Millis

RETRY_MIN_MS = 250

FRESH_US = 3_000_000
"""Subscriptions younger than this get nothing of the past: no guarantee covers what they missed."""

EXPECTED_US = 60_000_000
"""For this long after we step in for a broker, chains of its clients' filters begin in the past."""

FORMER_MAX = 4_096
"""How many chains of one origin we remember after our clients unsubscribed."""

NOBODY = BrokerId(-1)
"""Stands for the neighbour where a number was restored from disk, or is a guess of ours."""


class Chained(NamedTuple):
    """A frame's place on one chain: the filter's key, and the number of the frame before it."""

    key: bytes
    prev: int


@dataclass(frozen=True, slots=True)
class Ask:
    """What to ask an origin for."""

    origin: BrokerId
    epoch: int
    chains: tuple[AskedChain, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A frame, and its places on the chains that our clients want."""

    frame: Frame
    links: tuple[Chained, ...]


@dataclass(slots=True)
class Chain:
    """The position of one chain."""

    last: int | None  # delivered up to this number; ``None`` while the beginning is unknown
    target: int  # the greatest number known to be on it
    not_before_us: int = 0  # frames made earlier, by the origin's wall clock, are not asked for
    begun: int = 0  # frames up to this number precede our subscription: the chain ignores them
    brought_by: BrokerId = NOBODY  # the neighbour that last moved it
    # Earlier values of ``last``, ascending: a forged frame may have caused one of the last steps.
    undo: list[int] = field(default_factory=list)
    # Steps that skipped numbers. The origin is asked about each of them, the last first.
    unsure: list[Doubted] = field(default_factory=list)
    way: int = -1  # the value of ``Receiver._opened`` when the steps were last checked

    def look_at_steps(self, way: int) -> None:
        """Doubt each step that skipped numbers: frames that would expose a forgery may be lost."""
        self.way = way
        steps = pairwise([*self.undo, self.last or 0])
        self.unsure = [Doubted(at - 1, NOBODY, before) for before, at in steps if at > before + 1]

    def move(self, last: int, brought_by: BrokerId) -> None:
        if self.last is not None:
            self.undo.append(self.last)
            if len(self.undo) > UNDO_MAX:
                del self.undo[0]
        self.last, self.brought_by = last, brought_by

    def before(self, number: int) -> int | None:
        """Where the chain stood when it skipped ``number``; ``None`` if it did not.

        Only the last ``UNDO_MAX`` steps are known.
        """
        undo = self.undo
        if self.last is None or not undo or not undo[0] < number < self.last or number in undo:
            return None
        return max(last for last in undo if last < number)

    def take_back(self, through: int, to: int | None, *, not_before_us: int) -> None:
        """Roll the chain back to ``to``: a forged frame moved it beyond ``through``.

        Without ``to``, the last known position up to ``through`` is taken. If there is none either,
        everything made since ``not_before_us`` is requested again.
        """
        if self.last is not None and self.last > through:
            if to is None:
                to = max((last for last in self.undo if last <= through), default=None)
            self.undo = [last for last in self.undo if to is not None and last < to]
            self.unsure = [d for d in self.unsure if to is not None and d.number < to]
            self.last = to
            if to is None:
                self.not_before_us = not_before_us
        self.begun = min(self.begun, through)


@dataclass(slots=True)
class OriginState:
    """What we know about one origin."""

    id: BrokerId
    epoch: int
    heard_ms: Millis  # when its last frame arrived
    top: int | None = None  # the greatest number accepted; ``None`` before the first
    begun_by: BrokerId = NOBODY  # the neighbour that delivered its first frame
    brought_by: BrokerId = NOBODY  # the neighbour that delivered the frame being handled
    chains: dict[bytes, Chain] = field(default_factory=dict)
    gaps: dict[bytes, None] = field(default_factory=dict)  # chains with missing frames, in order
    gaps_since_ms: Millis = Millis(0)  # since when ``gaps`` is not empty
    # Frames that wait for earlier ones, by number.
    held: dict[int, Placed] = field(default_factory=dict)
    # By (key, number): the held frame that follows that number.
    waiting: dict[tuple[bytes, int], int] = field(default_factory=dict)
    # The last number of chains that our clients gave up.
    former: Recent[bytes, int] = field(default_factory=lambda: Recent(FORMER_MAX))
    retry_ms: int = RETRY_MIN_MS  # how long after a request the next one is sent
    asked: bool = False  # whether a request was sent since ``gaps`` was last empty

    def remember(self, key: bytes, chain: Chain) -> None:
        """Keep the position of ``chain`` for later subscriptions: clocks are too coarse."""
        self.former.put(key, chain.begun if chain.last is None else chain.last)

    def is_next(self, placed: Placed) -> bool:
        """Whether the frame is next on each of its chains."""
        for key, prev in placed.links:
            chain = self.chains.get(key)
            if chain is None or placed.frame.seq <= chain.begun:
                continue
            if chain.last is None or prev > chain.last:
                return False
        return True

    def is_stale(self, placed: Placed) -> bool:
        """Whether one of its chains has already passed the frame."""
        seq = placed.frame.seq
        chains = [self.chains.get(key) for key, _ in placed.links]
        return any(c is not None and c.last is not None and c.begun < seq <= c.last for c in chains)


class Wanted:
    """What our clients subscribe to, and since when by our wall clock.

    Args:
        keep_ms: How long origins keep what they made.
    """

    def __init__(self, *, keep_ms: int) -> None:
        self.since_us: dict[bytes, int] = {}  # by key
        self._keep_ms = keep_ms
        # (since when, until when that counts), by key.
        self._expected: Recent[bytes, tuple[int, int]] = Recent(FORMER_MAX)

    def expect(self, key: bytes, since_us: int, now_us: int) -> None:
        """A client of the broker that we step in for wanted ``key`` since ``since_us``."""
        before_us, until_us = self._expected.get(key, (since_us, 0))
        if now_us < until_us:  # another such client came within the minute
            since_us = min(since_us, max(before_us, now_us - EXPECTED_US))
        self._expected.put(key, (since_us, now_us + EXPECTED_US))

    def is_fresh(self, key: bytes, now_us: int) -> bool:
        """Whether the subscription is so young that nothing older is requested for it."""
        _, expected_until_us = self._expected.get(key, (0, 0))
        return now_us >= expected_until_us and self.age_us(key, now_us) < FRESH_US

    def age_us(self, key: bytes, now_us: int) -> int:
        """For how long our clients have wanted ``key``."""
        since_us = self.since_us.get(key, now_us)
        expected_us, until_us = self._expected.get(key, (0, 0))
        if now_us < until_us:
            since_us = min(since_us, expected_us)
        if since_us > now_us:  # our clock was set back: assume the greatest age
            return self._keep_ms * 1_000
        return now_us - since_us

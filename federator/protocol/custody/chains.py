"""What a receiver remembers: a number for each chain, and the frames that wait for earlier ones.

Source: docs/protocol.md section 11.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from federator.protocol.custody.doubts import Doubted
from federator.protocol.custody.ports import UNDO_MAX
from federator.protocol.forwarding.frames import Frame
from federator.protocol.messages.control import AskedChain
from federator.protocol.types import BrokerId, Millis

RETRY_MIN_MS = 250

FRESH_US = 3_000_000
"""Clients that came so lately ask for nothing of the past: what they miss, nobody promised."""

EXPECTED_US = 60_000_000
"""How long after we stepped in for a broker its clients' filters begin in the past."""

FORMER_MAX = 4_096
"""Chains of one origin remembered that our clients gave up."""

NOBODY = BrokerId(-1)
"""Who brought what we restored, or asked for ourselves."""


class Chained(NamedTuple):
    """A frame's place on one chain: the filter's key, and the number of the frame before it."""

    key: bytes
    prev: int


@dataclass(frozen=True, slots=True)
class Ask:
    """What an origin must be asked for."""

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
    """Where one chain stands."""

    last: int | None  # delivered up to here; ``None`` while the beginning is not known
    target: int  # the greatest number known to be on it
    not_before_us: int = 0  # frames made earlier, by the origin's wall clock, are not asked for
    begun: int = 0  # frames up to here were before our time: the chain says nothing about them
    brought_by: BrokerId = NOBODY  # the neighbour that last moved it
    # What ``last`` was before its last steps: one of them may turn out to be a lie.
    undo: list[int] = field(default_factory=list)
    # Steps that left numbers out: of each the origin is to be asked, the last first.
    unsure: list[Doubted] = field(default_factory=list)
    way: int = -1  # since which opening of a way the steps were looked at

    def look_at_steps(self, way: int) -> None:
        """Frames may have been missed that would have shown which of the steps were lies."""
        self.way = way
        steps = pairwise([*self.undo, self.last or 0])
        self.unsure = [Doubted(at - 1, NOBODY, before) for before, at in steps if at > before + 1]

    def move(self, last: int, brought_by: BrokerId) -> None:
        """Go on to ``last``."""
        if self.last is not None:
            self.undo.append(self.last)
            if len(self.undo) > UNDO_MAX:
                del self.undo[0]
        self.last, self.brought_by = last, brought_by

    def before(self, number: int) -> int | None:
        """Where the chain stood when it went past ``number`` without it; ``None``: it did not.

        That is told of its last steps only.
        """
        undo = self.undo
        if self.last is None or not undo or not undo[0] < number < self.last or number in undo:
            return None
        return max(last for last in undo if last < number)

    def take_back(self, through: int, to: int | None, *, not_before_us: int) -> None:
        """It went past ``through`` by a lie: go back ``to`` where it stood.

        Where that is not known, what was made from ``not_before_us`` on is asked for again.
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
    """What is known of one origin."""

    id: BrokerId
    epoch: int
    heard_ms: Millis  # when it was heard last
    top: int | None = None  # the greatest number taken; ``None`` before the first
    begun_by: BrokerId = NOBODY  # the neighbour that brought it first
    brought_by: BrokerId = NOBODY  # the neighbour that brought what is looked at now
    chains: dict[bytes, Chain] = field(default_factory=dict)
    gaps: dict[bytes, None] = field(default_factory=dict)  # chains that lack something, in order
    gaps_since_ms: Millis = Millis(0)  # since when there are any
    held: dict[int, Placed] = field(default_factory=dict)  # frames that wait, by number
    # By chain and number: which held frame comes after that one.
    waiting: dict[tuple[bytes, int], int] = field(default_factory=dict)
    former: dict[bytes, int] = field(default_factory=dict)  # the last number of unwanted chains
    retry_ms: int = RETRY_MIN_MS  # how long after a request the next one comes
    asked: bool = False  # for what is missing, since something is

    def remember(self, key: bytes, chain: Chain) -> None:
        """Our clients may want the chain again; clocks alone do not tell what they had."""
        last = chain.begun if chain.last is None else chain.last
        if len(self.former) >= FORMER_MAX:
            del self.former[next(iter(self.former))]
        self.former[key] = last

    def is_next(self, placed: Placed) -> bool:
        """Whether it is the turn of a frame on each of its chains."""
        for key, prev in placed.links:
            chain = self.chains.get(key)
            if chain is None or placed.frame.seq <= chain.begun:
                continue
            if chain.last is None or prev > chain.last:
                return False
        return True

    def is_stale(self, placed: Placed) -> bool:
        """Whether some chain has gone past a frame."""
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
        self._expected: dict[bytes, tuple[int, int]] = {}  # since when, and until when that counts

    def expect(self, key: bytes, since_us: int, now_us: int) -> None:
        """A client that we step in for wanted ``key`` since ``since_us``."""
        before_us, until_us = self._expected.get(key, (since_us, 0))
        if now_us < until_us:  # another one did, too
            since_us = min(since_us, max(before_us, now_us - EXPECTED_US))
        self._expected[key] = (since_us, now_us + EXPECTED_US)
        if len(self._expected) > FORMER_MAX:
            del self._expected[next(iter(self._expected))]

    def is_fresh(self, key: bytes, now_us: int) -> bool:
        """Whether our clients came so lately that they ask for nothing of the past."""
        _, expected_until_us = self._expected.get(key, (0, 0))
        return now_us >= expected_until_us and self.age_us(key, now_us) < FRESH_US

    def age_us(self, key: bytes, now_us: int) -> int:
        """How long our clients want ``key`` already."""
        since_us = self.since_us.get(key, now_us)
        expected_us, until_us = self._expected.get(key, (0, 0))
        if now_us < until_us:
            since_us = min(since_us, expected_us)
        if since_us > now_us:  # our clock was set back: as long ago as can be
            return self._keep_ms * 1_000
        return now_us - since_us

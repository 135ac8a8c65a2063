"""From one cover to the next without a gap, and with copies that can be told apart.

A client cannot swap two overlapping subscriptions at once. With none for a moment, publications are
lost; with both, the broker sends two copies. Here both stand for a moment, and the arriving one
carries a Subscription Identifier, so that the receiver sees which copy is which. It is a bridge
replaced beside the old one, with a gate at the end that lets each traveller through once.

A transition has three stages, each ended by a *mark*, a message we send to ourselves through the
same queue of the broker, behind everything it had for us before:

1. arriving: SUBSCRIBE what arrives, with an identifier. From some moment on, copies come in pairs.
   The mark parts what came alone for a retiring filter from what comes alone for an arriving one;
   were they neighbours, two equal publications would look like a pair.
2. retiring: UNSUBSCRIBE what retires. After the mark no pair can come any more.
3. plain: SUBSCRIBE what arrived again, without identifier. After the mark no publication carries
   one, and nobody needs to look.

Changes that overlap nothing that leaves, nearly all, are made at once. The others wait while a
transition runs.

A session that outlives its connection queues meanwhile, for the subscriptions that stood when it
broke: copies in pairs, if that was in a transition, and perhaps one of a process that was killed.
So a connection that finds its session first sends a mark, and until that comes expects anything.

Source: OASIS MQTT 5.0, sections 3.3.4 and 3.8.4.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

import msgspec

from federator.protocol.filters import CoverChange, FilterTrie

IDENTIFIER_MAX = 268_435_455
MARKS_MAX = 10
"""Marks sent without an answer before a stage counts as over."""


class Subscribe(msgspec.Struct, frozen=True):
    """Subscribe ``filters``, or replace their identifier."""

    filters: tuple[str, ...]
    identifier: int | None = None


class Unsubscribe(msgspec.Struct, frozen=True):
    """Unsubscribe ``filters``."""

    filters: tuple[str, ...]


class Mark(msgspec.Struct, frozen=True):
    """Send ``number`` to ourselves, after what was ordered before."""

    number: int


Order = Subscribe | Unsubscribe | Mark


class Stage(Enum):
    """Where a transition stands."""

    STEADY = auto()
    RESUMING = auto()
    ARRIVING = auto()
    RETIRING = auto()
    PLAIN = auto()


@dataclass(eq=False)
class CoverTransition:
    """The subscriptions of one connection on their way to a changing cover."""

    stage: Stage = Stage.STEADY
    retiring: tuple[str, ...] = ()  # filters that it unsubscribes, sorted; empty when steady
    arriving: tuple[str, ...] = ()  # those that it subscribes in their place, likewise
    identifier: int = 0  # what ``arriving`` carry while they overlap ``retiring``
    marked: bool = False  # publications with an identifier may still come
    given_up: int = 0  # stages that ended without their mark

    def __post_init__(self) -> None:
        self._identifiers = False  # connected to a broker that knows them
        self._to_add: set[str] = set()
        self._to_remove: set[str] = set()
        self._leaving = FilterTrie()  # what retires, and what is to be removed
        self._mark_number = 0
        self._first_mark = 0  # of this stage
        self._marks = 0  # of this stage

    def change(self, change: CoverChange) -> list[Order]:
        """The cover has changed."""
        if not self._identifiers:
            return _plain(change.subscribe, change.unsubscribe)
        for filter in change.unsubscribe:
            if filter in self._to_add:
                self._to_add.discard(filter)
            else:
                self._to_remove.add(filter)
                self._leaving.add(filter)
        added = []
        for filter in change.subscribe:
            if filter in self._to_remove:
                self._to_remove.discard(filter)
                self._leaving.discard(filter)
            else:
                self._to_add.add(filter)
                added.append(filter)
        if self.stage is Stage.STEADY:
            return self._begin()
        return _plain(self._free(added), ())

    def on_up(self, *, identifiers: bool, session_present: bool) -> list[Order]:
        """Connected, and all that is wanted is being subscribed plainly.

        Args:
            identifiers: The broker knows Subscription Identifiers.
            session_present: It has kept our session.
        """
        self._identifiers = identifiers
        if not (identifiers and session_present):
            return []
        self.stage = Stage.RESUMING
        self.marked = True
        return [self._first_of_stage()]

    def on_down(self) -> list[Order]:
        """The connection is gone, and with it identifiers and copies: what is wanted, plainly."""
        standing = self.retiring if self.stage is Stage.ARRIVING else ()
        orders = _plain(self._to_add, (self._to_remove | set(standing)) - self._to_add)
        self._identifiers = self.marked = False
        self.stage = Stage.STEADY
        self.retiring = self.arriving = ()
        self._to_add, self._to_remove = set(), set()
        self._leaving = FilterTrie()
        return orders

    def on_mark(self, number: int, *, answered: bool) -> list[Order]:
        """A mark came back.

        Args:
            number: Those of an earlier stage mean nothing.
            answered: The broker has answered what this stage asked it to alter. Many filters take
                many packets, and a mark may have overtaken some.
        """
        if self.stage is Stage.STEADY or not self._first_mark <= number <= self._mark_number:
            return []
        if not answered:
            return [self._mark()]
        return self._next_stage(drained=True)

    def on_silence(self) -> list[Order]:
        """No mark came for a while: send another, or go on without."""
        if self.stage is Stage.STEADY:
            return []
        if self._marks < MARKS_MAX:
            return [self._mark()]
        self.given_up += 1
        return self._next_stage(drained=False)

    def _begin(self) -> list[Order]:
        """Make every waiting change that needs no transition, and start one for the others."""
        free = self._free(sorted(self._to_add))
        colliding = tuple(sorted(self._to_add))
        retiring = {other for filter in colliding for other in self._leaving.overlapping(filter)}
        gone = self._to_remove - retiring
        for filter in gone:
            self._leaving.discard(filter)
        self._to_add, self._to_remove = set(), set()
        orders = _plain(free, gone)
        if not colliding:
            return orders
        self.stage = Stage.ARRIVING
        self.arriving, self.retiring = colliding, tuple(sorted(retiring))
        self.identifier = self.identifier % IDENTIFIER_MAX + 1
        self.marked = True
        return [*orders, Subscribe(self.arriving, self.identifier), self._first_of_stage()]

    def _next_stage(self, *, drained: bool) -> list[Order]:
        if self.stage is Stage.ARRIVING:
            self.stage = Stage.RETIRING
            return [Unsubscribe(self.retiring), self._first_of_stage()]
        if self.stage is Stage.RETIRING:
            for filter in self.retiring:
                self._leaving.discard(filter)
            self.stage, self.retiring = Stage.PLAIN, ()
            return [Subscribe(self.arriving), self._first_of_stage()]
        self.stage, self.arriving = Stage.STEADY, ()
        self.marked = not drained
        return self._begin()

    def _free(self, filters: Iterable[str]) -> list[str]:
        """Take out of the waiting ones those of ``filters`` that overlap nothing that leaves."""
        free = [filter for filter in filters if not self._leaving.overlapping(filter)]
        self._to_add.difference_update(free)
        return free

    def _first_of_stage(self) -> Mark:
        self._first_mark = self._mark_number + 1
        self._marks = 0
        return self._mark()

    def _mark(self) -> Mark:
        self._mark_number += 1
        self._marks += 1
        return Mark(self._mark_number)


def sent_first(a: str, b: str) -> bool:
    """Whether Mosquitto sends the copy for ``a`` before that for ``b``, where a topic matches both.

    It walks its tree level by level: the literal branch, then ``+``, then ``#``; what ends at a
    branch comes after what goes on below it (``sub__search`` in subs.c, 2.0 and 2.1).
    """
    return _turns(a) < _turns(b)


def _turns(filter: str) -> list[int]:
    ranks = {"+": 1, "#": 2}
    return [*(ranks.get(level, 0) for level in filter.split("/")), 3]


def _plain(subscribe: Iterable[str], unsubscribe: Iterable[str]) -> list[Order]:
    orders: list[Order] = []
    if added := tuple(sorted(subscribe)):
        orders.append(Subscribe(added))
    if removed := tuple(sorted(unsubscribe)):
        orders.append(Unsubscribe(removed))
    return orders

"""From one cover to the next without a gap, and without duplicate deliveries.

A client cannot swap two overlapping subscriptions at once. With none for a moment, publications are
lost; with both, the broker sends two copies. Here both exist for a moment, and the arriving one
carries a Subscription Identifier, so that the receiver sees which copy is which. It is a bridge
replaced beside the old one, with a gate at the end that lets each traveller through once.

A transition has three stages, each ended by a *mark*, a message we send to ourselves through the
same queue of the broker, after everything that it queued for us before:

1. arriving: SUBSCRIBE the arriving filters, with an identifier. From some moment on, copies come in
   pairs. The mark separates single copies for a retiring filter from single copies for an arriving
   one; side by side, two equal publications would look like a pair.
2. retiring: UNSUBSCRIBE the retiring filters. After the mark no pair can come.
3. plain: SUBSCRIBE the arriving filters again, without identifier. After the mark no publication
   carries one, and none need be checked.

Changes that overlap no leaving filter, nearly all, are made at once. The others wait while a
transition runs.

A retiring filter may stand for a hundred thousand others. So everything is done in steps, each of
which looks at no more than ``at_once`` filters: changes are read one after the other, the colliding
ones are sorted into arriving and retiring filters, and each stage issues its orders part by part
before its mark. A leaving filter stays subscribed until all that replace it are.

A transition outlives its connection: the next one subscribes what stood, identifiers included, and
goes on from there. Without a connection filters are subscribed that overlap no leaving one; all
else waits, so that a connection never begins with two that overlap and cannot be told apart.

A session that outlives its connection meanwhile queues publications for the subscriptions that it
had when the connection broke: copies in pairs, if that was during a transition, perhaps one of a
process that was killed. So a connection that finds its session expects either kind of copy until
its first mark comes.

Source: OASIS MQTT 5.0, sections 3.3.4 and 3.8.4.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import chain, groupby, islice, repeat

import msgspec

from federator.protocol.filters import CoverChange, FilterTrie

IDENTIFIER_MAX = 268_435_455
MARKS_MAX = 10
"""After so many marks without an answer a stage counts as over."""

AT_ONCE = 256
"""How many filters one step looks at: at some 0.02 ms each with all that follows, 5 ms."""


class Subscribe(msgspec.Struct, frozen=True):
    """Subscribe ``filters``, or replace their identifier."""

    filters: tuple[str, ...]
    identifier: int | None = None


class Unsubscribe(msgspec.Struct, frozen=True):
    """Unsubscribe ``filters``."""

    filters: tuple[str, ...]


class Mark(msgspec.Struct, frozen=True):
    """Send ``number`` to ourselves, after everything ordered before."""

    number: int


Order = Subscribe | Unsubscribe | Mark


class Stage(Enum):
    """The stage of a transition."""

    STEADY = auto()
    ARRIVING = auto()
    RETIRING = auto()
    PLAIN = auto()


@dataclass(eq=False)
class CoverTransition:
    """The subscriptions of one connection on their way to a changing cover.

    While ``unfinished`` its owner calls ``go_on``, alternating with its other work.
    """

    at_once: int = AT_ONCE
    stage: Stage = Stage.STEADY
    resuming: bool = False  # until the first mark, copies for any filters may come
    # The filters it unsubscribes; empty later.
    retiring: FilterTrie = field(default_factory=FilterTrie)
    arriving: FilterTrie = field(default_factory=FilterTrie)  # the filters it subscribes instead
    identifier: int = 0  # the identifier of ``arriving`` while they overlap ``retiring``
    marked: bool = False  # publications with an identifier may still come
    given_up: int = 0  # stages that ended without their mark

    def __post_init__(self) -> None:
        self._up = False
        self._identifiers = True  # the broker supports them, as far as is known
        # Changes not read yet: (filter, is wanted).
        self._news: deque[Iterator[tuple[str, bool]]] = deque()
        self._to_add: dict[str, None] = {}  # in order of arrival, like those below
        self._to_remove: dict[str, None] = {}
        self._retiring: dict[str, None] = {}
        self._arriving: dict[str, None] = {}
        self._leaving = FilterTrie()  # retiring filters, and those to be removed
        self._gone: deque[str] = deque()  # retired filters that are still in ``_leaving``
        self._unsent: deque[str] | None = None  # not ordered in this stage; its mark follows them
        self._work: Iterator[Order | None] = iter(())
        self._mark_number = 0
        self._first_mark = 0  # of this stage
        self._marks = 0  # of this stage

    @property
    def unfinished(self) -> bool:
        """Whether there is work to do that need not wait for the broker."""
        waiting = self._is_idle and (self._to_add or self._to_remove)
        return bool(self._news or self._gone or (self._up and (waiting or self._has_orders)))

    @property
    def _is_idle(self) -> bool:
        return self.stage is Stage.STEADY and not self.resuming

    @property
    def _has_orders(self) -> bool:
        """Whether orders of this stage are left, its mark included."""
        return self._unsent is not None

    @property
    def waits(self) -> bool:
        """Whether a filter may be wanted that is not ordered yet."""
        unsent = self.stage is Stage.ARRIVING and self._unsent is not None
        return bool(self._news or self._to_add) or unsent

    @property
    def altered(self) -> Iterable[str]:
        return chain(self._arriving, self._retiring)

    def change(self, change: CoverChange) -> list[Order]:
        if not change:
            return []
        busy = self.unfinished
        self._news.append(_news(change.unsubscribe, change.subscribe))
        return [] if busy else self.go_on()

    def go_on(self) -> list[Order]:
        """Do the next step of the work."""
        done = list(islice(self._work, self.at_once))
        if len(done) < self.at_once:
            self._work = self._steps()
            done += islice(self._work, self.at_once - len(done))
        return _merged(done)

    def on_up(self, *, identifiers: bool, session_present: bool) -> list[Order]:
        """Handle a new connection, on which everything ordered so far is being subscribed.

        Args:
            identifiers: The broker supports Subscription Identifiers.
            session_present: It has kept our session.
        """
        self._up, self._identifiers = True, identifiers
        self._work = iter(())
        self.resuming = identifiers and session_present
        self.marked = self.resuming or (identifiers and self.stage is not Stage.STEADY)
        if self._is_idle or self._has_orders:
            return self.go_on()
        return [self._first_of_stage()]

    def on_down(self) -> None:
        """Wait for the next connection: this one's mark, if there was one, will not come."""
        self._up = self.resuming = False
        self._work = iter(())

    def on_mark(self, number: int, *, answered: bool) -> list[Order]:
        """Handle a mark that came back.

        Args:
            number: Marks of an earlier stage are ignored.
            answered: The broker has answered all changes of this stage. Many filters take many
                packets, and a mark may have overtaken some.
        """
        if self._is_silent or not self._first_mark <= number <= self._mark_number:
            return []
        if not answered:
            return [self._mark()]
        return self._next_stage(drained=True)

    def on_silence(self) -> list[Order]:
        """No mark came for a while: send another one, or go on without it."""
        if self._is_silent:
            return []
        if self._marks < MARKS_MAX:
            return [self._mark()]
        self.given_up += 1
        return self._next_stage(drained=False)

    @property
    def _is_silent(self) -> bool:
        """Whether no mark is on its way: there is none, or orders must go out before it."""
        return self._is_idle or self._has_orders or not self._up

    def _steps(self) -> Iterator[Order | None]:
        """All work to do: for each filter looked at an order, or nothing."""
        while self.unfinished:
            if self._gone:
                self._leaving.discard(self._gone.popleft())
                yield None
            elif self._news:
                yield from self._read(self._news[0])
                self._news.popleft()
            elif not self._up:
                return
            elif self._unsent:
                yield self._stage_order(self._unsent.popleft())
            elif self._unsent is not None:
                self._unsent = None
                yield self._first_of_stage()
            else:
                yield from self._begin()

    def _read(self, news: Iterator[tuple[str, bool]]) -> Iterator[Order | None]:
        """Read changes, and subscribe filters that overlap no leaving one."""
        for filter, wanted in news:
            order: Order | None = None
            if not wanted:
                if filter in self._to_add:
                    del self._to_add[filter]
                else:
                    self._to_remove[filter] = None
                    self._leaving.add(filter)
            elif filter in self._to_remove:
                del self._to_remove[filter]
                self._leaving.discard(filter)
            elif self._collides(filter):
                self._to_add[filter] = None
            else:
                order = Subscribe((filter,))
            yield order

    def _begin(self) -> Iterator[Order | None]:
        """Make every waiting change that needs no transition, and start one for the others."""
        arriving, retiring = FilterTrie(), FilterTrie()
        for filter in [*self._to_add]:
            if self._collides(filter):
                arriving.add(filter)
                yield None
            else:
                del self._to_add[filter]
                yield Subscribe((filter,))
        for filter in [*self._to_remove]:
            if arriving.overlaps(filter):
                retiring.add(filter)
                yield None
            else:
                del self._to_remove[filter]
                self._leaving.discard(filter)
                yield Unsubscribe((filter,))
        if not self._to_add:
            return
        self.stage = Stage.ARRIVING
        self._arriving, self._retiring, self._to_add, self._to_remove = (
            self._to_add,
            self._to_remove,
            {},
            {},
        )
        self.arriving, self.retiring = arriving, retiring
        self._unsent = deque(self._arriving)
        self.identifier = self.identifier % IDENTIFIER_MAX + 1
        self.marked = True

    def _collides(self, filter: str) -> bool:
        """Whether ``filter`` overlaps a leaving one, where that needs a transition."""
        return (self._identifiers or not self._up) and self._leaving.overlaps(filter)

    def _stage_order(self, filter: str) -> Order:
        if self.stage is Stage.RETIRING:
            return Unsubscribe((filter,))
        labelled = self.stage is Stage.ARRIVING and self._identifiers
        return Subscribe((filter,), self.identifier if labelled else None)

    def _next_stage(self, *, drained: bool) -> list[Order]:
        self.resuming = False
        if self.stage is Stage.ARRIVING:
            self.stage = Stage.RETIRING
            self._unsent = deque(self._retiring)
        elif self.stage is Stage.RETIRING:
            self.stage, self.retiring = Stage.PLAIN, FilterTrie()
            self._gone.extend(self._retiring)
            self._retiring, self._unsent = {}, deque(self._arriving)
        else:
            self.stage, self.arriving, self._arriving = Stage.STEADY, FilterTrie(), {}
            self.marked = not drained
        return self.go_on()

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

    It walks its tree level by level: the literal branch, then ``+``, then ``#``; a filter that ends
    at a branch comes after those that go on below it (``sub__search`` in subs.c, 2.0 and 2.1).
    """
    return _turns(a) < _turns(b)


def _turns(filter: str) -> list[int]:
    ranks = {"+": 1, "#": 2}
    return [*(ranks.get(level, 0) for level in filter.split("/")), 3]


def _news(removed: Iterable[str], added: Iterable[str]) -> Iterator[tuple[str, bool]]:
    return chain(zip(removed, repeat(False)), zip(added, repeat(True)))


def _merged(orders: Iterable[Order | None]) -> list[Order]:
    """Orders of one filter each, with adjacent orders of one kind merged into one."""
    merged: list[Order] = []
    for _, group in groupby((order for order in orders if order is not None), _kind):
        first, *others = group
        if not isinstance(first, Mark):
            rest = (other.filters for other in others if not isinstance(other, Mark))
            filters = tuple(chain(first.filters, *rest))
            first = msgspec.structs.replace(first, filters=filters)
        merged.append(first)
    return merged


def _kind(order: Order) -> tuple[type, int | None]:
    return type(order), order.identifier if isinstance(order, Subscribe) else None

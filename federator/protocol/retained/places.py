"""Which topics keep an entry when there are more topics than places.

It is a car park in which each company has its share. A parked car stays as long as others do not
need the room. When the car park is full, a new car takes the place of the company with the most
cars, namely that of its last car. Half of the places belong to the house itself, which also has its
share of the others: only we can speak for our own broker's values. A company without a claim parks
in the short-term lot; there the car that was away longest makes room.

So no broker, however many topics it sets, pushes out what others set, nor what was set before on
that broker; and the topics that stay do not change from one look to the next. Topics set after a
flood on the same broker are guests: their entries are made when they are looked for, and are not
saved. So are values found on our broker when it is full, as their origin is unknown.

Source: docs/protocol.md 13; docs/security.md, "Threats and answers".
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from federator.protocol.types import BrokerId

TOPICS_MAX = 100_000
GUESTS_SHARE = 4
"""One place in so many is for guests."""

ACCOUNTS_MAX = 256
"""Origins with a share of their own. Further ones, perhaps invented, have one share together."""

OTHERS = BrokerId(-1)

CULPRIT_TOPICS = 1_000
"""How many of an origin's newest topics are counted to report where most begin."""


class Places:
    """The places of one agent's entries.

    Args:
        topics_max: Places, those of guests included.
    """

    def __init__(self, self_id: BrokerId, *, topics_max: int) -> None:
        self.crowded = False  # there were more topics than lasting places, and there is no room yet
        self.refused = 0  # guests that lost their place
        self._self_id = self_id
        self.guests_max = topics_max // GUESTS_SHARE
        self._lasting_max = topics_max - self.guests_max
        self._lasting: dict[str, BrokerId] = {}  # topic: its account
        self._accounts: dict[BrokerId, dict[str, None]] = {}  # in order of arrival
        self._guests: dict[str, None] = {}  # the most recently seen one is last
        self._largest = self_id
        self._turned_away: Counter[BrokerId] = Counter()  # by account, while ``crowded``

    @property
    def guests(self) -> int:
        """How many topics have no lasting place."""
        return len(self._guests)

    def is_guest(self, topic: str) -> bool:
        """Whether the place of ``topic`` is not a lasting one."""
        return topic in self._guests

    def culprit(self) -> tuple[BrokerId, int, str]:
        """The origin with topics without a place, how many places it has, and where most begin."""
        ((account, _),) = self._turned_away.most_common(1) or [(self._largest, 0)]
        topics = self._accounts.get(account, {})
        newest = islice(reversed(topics), CULPRIT_TOPICS)
        levels = Counter(topic.partition("/")[0] for topic in newest)
        ((level, _),) = levels.most_common(1) or [("", 0)]
        return account, len(topics), level

    def take(
        self, topic: str, origin: BrokerId, *, found: bool = False
    ) -> tuple[str | None, str | None]:
        """Give ``topic``, with its newest value of ``origin``, a place.

        Args:
            topic: A topic, perhaps one that has a place.
            origin: The broker whose share it counts for.
            found: Its origin is unknown: it was found on our broker; it takes no other's place.

        Returns:
            A topic that is a guest from now on, and one that no longer has a place.
        """
        account = origin if origin in self._accounts else OTHERS
        if account == OTHERS and (origin == self._self_id or len(self._accounts) < ACCOUNTS_MAX):
            account = origin
        before = self._lasting.get(topic)
        if before == account:
            return None, None
        if before is not None:
            self._leave(topic)
        self._guests.pop(topic, None)
        if len(self._lasting) < self._lasting_max:
            self._settle(topic, account)
            return None, None
        self.crowded = True
        loser = account
        guest, gave_way = topic, None
        if not found and self._claim(account) + 1 < self._claim(self._largest):
            loser = self._largest
            guest = gave_way = next(reversed(self._accounts[self._largest]))
            self._leave(guest)
            self._settle(topic, account)
        self._guests[guest] = None
        if not found:
            self._turned_away[loser] += 1
        if len(self._guests) <= self.guests_max:
            return gave_way, None
        self.refused += 1
        return gave_way, next(iter(self._guests))

    def free(self, topic: str) -> None:
        """Free the place of ``topic``."""
        if topic in self._lasting:
            self._leave(topic)
            if len(self._lasting) < 0.9 * self._lasting_max:
                self.crowded = False
                self._turned_away.clear()
        else:
            del self._guests[topic]

    def _claim(self, account: BrokerId) -> int:
        """Places of an account beyond its guaranteed ones; the greatest claim has to give."""
        places = len(self._accounts.get(account, ()))
        return places - self._lasting_max // 2 if account == self._self_id else places

    def _settle(self, topic: str, account: BrokerId) -> None:
        self._lasting[topic] = account
        self._accounts.setdefault(account, {})[topic] = None
        self._largest = max(self._largest, account, key=self._claim)

    def _leave(self, topic: str) -> None:
        account = self._lasting.pop(topic)
        places = self._accounts[account]
        del places[topic]
        if not places:
            del self._accounts[account]
        if account == self._largest:
            self._largest = max((self._self_id, *self._accounts), key=self._claim)


class SortedNames:
    """Topics in order, where many come and go between two reads."""

    def __init__(self) -> None:
        self._sorted: list[str] = []
        self._came: list[str] = []
        self._gone: set[str] = set()  # removed, and still listed

    def add(self, name: str) -> None:
        if name in self._gone:
            self._gone.discard(name)
        else:
            self._came.append(name)
            if len(self._came) > 1_000 + len(self._sorted) // 8:
                self._merge()

    def discard(self, name: str) -> None:
        """Remove a name that is present."""
        self._gone.add(name)
        if 2 * len(self._gone) > len(self._sorted) + len(self._came):
            self._sorted = [n for n in self._sorted if n not in self._gone]
            self._came = [n for n in self._came if n not in self._gone]
            self._gone.clear()

    def beginning(self, start: str, *, after: str) -> Iterator[str]:
        """The names that begin with ``start`` and come after ``after``."""
        names = self._sorted
        self._merge()
        at = bisect_left(names, start) if start > after else bisect_right(names, after)
        while at < len(names) and (name := names[at]).startswith(start):
            if name not in self._gone:
                yield name
            at += 1

    def has_many(self, start: str, count: int) -> bool:
        """Whether some ``count`` names or more begin with ``start``: removed ones may count."""
        self._merge()
        last = bisect_left(self._sorted, start) + count - 1
        return last < len(self._sorted) and self._sorted[last].startswith(start)

    def _merge(self) -> None:
        if self._came:
            self._sorted += self._came
            self._sorted.sort()  # mostly in order, which makes it cheap
            self._came = []

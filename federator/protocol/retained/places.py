"""Which topics have an entry, when there are more than there is room for.

A car park in which each company has its share. Who has parked stays, as long as others do not need
the room; when it is full, who comes takes the place of the company with the most cars, and of
those the last one to come. Half of the places belong to the house itself, and it has its share of
the others, too: only we can speak for our own broker's values. A company without a claim parks in
the short-term lot: there who was away for longest makes room.

So nobody, by setting however many topics, pushes out what others set, nor what was set before on
his own broker; and which ones stay does not change from one look to the next. What is set behind a
flood on the same broker is a guest: known from when it is looked for, and not saved. So is what is
found on our broker when it is full, as nobody knows who set it.

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
"""Origins with a share of their own. Others, as somebody may invent them, have one together."""

OTHERS = BrokerId(-1)

CULPRIT_TOPICS = 1_000
"""The newest topics of an origin, of which we tell where most begin."""


class Places:
    """The places of one agent's entries.

    Args:
        topics_max: Places, those of guests included.
    """

    def __init__(self, self_id: BrokerId, *, topics_max: int) -> None:
        self.crowded = False  # there were more topics than lasting places, and there is no room yet
        self.refused = 0  # guests that had to go
        self._self_id = self_id
        self.guests_max = topics_max // GUESTS_SHARE
        self._lasting_max = topics_max - self.guests_max
        self._lasting: dict[str, BrokerId] = {}  # topic: its account
        self._accounts: dict[BrokerId, dict[str, None]] = {}  # in the order in which they came
        self._guests: dict[str, None] = {}  # the one looked at last is the last one
        self._largest = self_id
        self._turned_away: Counter[BrokerId] = Counter()  # by account, while it is crowded

    @property
    def guests(self) -> int:
        """How many topics have no lasting place."""
        return len(self._guests)

    def is_guest(self, topic: str) -> bool:
        """Whether the place of ``topic`` is not a lasting one."""
        return topic in self._guests

    def culprit(self) -> tuple[BrokerId, int, str]:
        """Whose topics find no place: an origin, how many have one, and where most begin."""
        ((account, _),) = self._turned_away.most_common(1) or [(self._largest, 0)]
        topics = self._accounts.get(account, {})
        newest = islice(reversed(topics), CULPRIT_TOPICS)
        levels = Counter(topic.partition("/")[0] for topic in newest)
        ((level, _),) = levels.most_common(1) or [("", 0)]
        return account, len(topics), level

    def take(
        self, topic: str, origin: BrokerId, *, found: bool = False
    ) -> tuple[str | None, str | None]:
        """Give ``topic``, whose newest value is of ``origin``, a place.

        Args:
            topic: A topic, perhaps one that has a place.
            origin: Whose share it counts for.
            found: Nobody knows whose it is: it was found on our broker, and takes nobody's place.

        Returns:
            A topic that is a guest from now on, and one that has no place any more.
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
        """``topic`` needs no place any more."""
        if topic in self._lasting:
            self._leave(topic)
            if len(self._lasting) < 0.9 * self._lasting_max:
                self.crowded = False
                self._turned_away.clear()
        else:
            del self._guests[topic]

    def _claim(self, account: BrokerId) -> int:
        """Places beyond those that are an account's in any case: the greatest has to give."""
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
    """Topics in order, where many come and go between two times that anybody asks for them."""

    def __init__(self) -> None:
        self._sorted: list[str] = []
        self._came: list[str] = []
        self._gone: set[str] = set()  # still listed

    def add(self, name: str) -> None:
        if name in self._gone:
            self._gone.discard(name)
        else:
            self._came.append(name)
            if len(self._came) > 1_000 + len(self._sorted) // 8:
                self._merge()

    def discard(self, name: str) -> None:
        """Take out a name that is there."""
        self._gone.add(name)
        if 2 * len(self._gone) > len(self._sorted) + len(self._came):
            self._sorted = [n for n in self._sorted if n not in self._gone]
            self._came = [n for n in self._came if n not in self._gone]
            self._gone.clear()

    def beginning(self, start: str, *, after: str) -> Iterator[str]:
        """The names that begin with ``start`` and come behind ``after``."""
        names = self._sorted
        self._merge()
        at = bisect_left(names, start) if start > after else bisect_right(names, after)
        while at < len(names) and (name := names[at]).startswith(start):
            if name not in self._gone:
                yield name
            at += 1

    def _merge(self) -> None:
        if self._came:
            self._sorted += self._came
            self._sorted.sort()  # mostly in order, which makes it cheap
            self._came = []

"""The session flow table: who publishes and subscribes what, on which broker; how alike two are.

Two clients have a **topic session** on a broker when one publishes there what the other subscribes
there: X TSR(t, B) Y. Like phone numbers that talked through one exchange: only that they did, in
which direction, counts when another exchange must take over.

Clients on one broker only cannot relate two brokers. So those on several are kept apart, and
relating two brokers looks at nobody else. Two brokers are equivalent in behaviour:

- **Strong** (A ~ B): the same ordered pair, X publishes and Y subscribes, has a topic session on
  both; the topics may differ.
- **Weak** (A ~~ B): the pair has one on both, in whichever order on each.
- **Weak by presence**, the third rule of equation (1): two clients publish or subscribe anything on
  both brokers. Table 11's B1 ~~ B2 holds by this rule only: on B2 both a and c just subscribe.

A pair is two different clients. The paper's printed rules are read as its Definitions 13 and 14
say; its table's "on/off" says whether the broker runs, and is not asked here: a broker that died
is exactly the one to be related.

Source: Chen 2020, 3.3, Definitions 10 to 14, equation (1), Table 11.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from federator.protocol.filters import FilterTrie, without_share
from federator.protocol.messages.session_records import FlowRow
from federator.protocol.types import BrokerId

COMPARED_CLIENTS_MAX = 64
"""Clients of two brokers that are looked at to relate them: one pair decides, more change nothing
but which witness is named."""

COMPARED_TOPICS_MAX = 256
"""Topics, and filters, of one such client that are looked at."""

TopicSession = tuple[str, str]
"""A pair of clients: (publisher, subscriber)."""


@dataclass(slots=True)
class Behaviour:
    """What one client does on one broker: topics it publishes, filters it subscribes."""

    publishes: set[str] = field(default_factory=set)
    subscribes: set[str] = field(default_factory=set)


class SessionFlowTable:
    """The rows of all brokers."""

    def __init__(self) -> None:
        self._rows: dict[BrokerId, set[FlowRow]] = {}
        self._places: dict[str, Counter[BrokerId]] = {}  # of a client: rows per broker
        self._roaming: set[str] = set()  # clients on several brokers

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def rows(self, broker: BrokerId) -> list[FlowRow]:
        """The rows of ``broker``, in order."""
        return sorted(self._rows.get(broker, ()))

    def count(self, broker: BrokerId) -> int:
        """How many rows ``broker`` has."""
        return len(self._rows.get(broker, ()))

    def add(self, broker: BrokerId, row: FlowRow) -> None:
        """Put ``row`` in; a row put in twice is in once."""
        rows = self._rows.setdefault(broker, set())
        if row in rows:
            return
        rows.add(row)
        places = self._places.setdefault(row.client, Counter())
        places[broker] += 1
        if len(places) > 1:
            self._roaming.add(row.client)

    def discard(self, broker: BrokerId, row: FlowRow) -> None:
        """Take ``row`` out, if it is in."""
        rows = self._rows.get(broker)
        if rows is None or row not in rows:
            return
        rows.discard(row)
        if not rows:
            del self._rows[broker]
        places = self._places[row.client]
        places[broker] -= 1
        if not places[broker]:
            del places[broker]
        if len(places) < 2:
            self._roaming.discard(row.client)
        if not places:
            del self._places[row.client]

    def drop(self, broker: BrokerId) -> None:
        """Forget all rows of ``broker``."""
        for row in self.rows(broker):
            self.discard(broker, row)

    def connected_at(self, client: str) -> list[BrokerId]:
        """Brokers where ``client`` is connected, ascending."""
        return [
            broker
            for broker in sorted(self._places.get(client, ()))
            if any(row.client == client and row.on for row in self._rows[broker])
        ]

    def shared_clients(self, a: BrokerId, b: BrokerId) -> list[str]:
        """Clients that do something on both brokers, the first few in order."""
        places = self._places
        both = [c for c in sorted(self._roaming) if places[c][a] and places[c][b]]
        return both[:COMPARED_CLIENTS_MAX]

    def behaviours(self, broker: BrokerId, clients: Iterable[str]) -> dict[str, Behaviour]:
        """What ``clients`` do on ``broker``."""
        found = {client: Behaviour() for client in clients}
        for row in self.rows(broker):
            behaviour = found.get(row.client)
            if behaviour is None:
                continue
            side = behaviour.publishes if row.action == "pub" else behaviour.subscribes
            if len(side) < COMPARED_TOPICS_MAX:
                side.add(row.topic)
        return found


def topic_sessions(behaviours: Mapping[str, Behaviour]) -> dict[TopicSession, str]:
    """Every ordered pair of different clients with a topic session, and one topic of it."""
    subscribers: dict[str, list[str]] = {}
    trie = FilterTrie()
    for client in sorted(behaviours):
        for filter in sorted(behaviours[client].subscribes):
            plain = without_share(filter)
            trie.add(plain)
            subscribers.setdefault(plain, []).append(client)
    sessions: dict[TopicSession, str] = {}
    for publisher in sorted(behaviours):
        for topic in sorted(behaviours[publisher].publishes):
            for filter in trie.match(topic):
                for subscriber in subscribers[filter]:
                    if subscriber != publisher:
                        sessions.setdefault((publisher, subscriber), topic)
    return sessions


class Likeness(IntEnum):
    """How alike two brokers are; the smaller is the better substitute."""

    STRONG = 0
    WEAK = 1
    WEAK_BY_PRESENCE = 2
    NONE = 3

    @property
    def word(self) -> str:
        """The name of the likeness, for operators."""
        return ("strong", "weak", "weak (third rule)", "none")[self]


@dataclass(frozen=True, slots=True)
class Relation:
    """How alike two brokers are, and which pair of clients shows it."""

    likeness: Likeness
    # The pair: publisher and subscriber on the first broker, or just two clients of both.
    clients: tuple[str, ...] = ()
    # The topics of their sessions on both brokers; empty by the third rule.
    topics: tuple[str, ...] = ()

    @property
    def degree(self) -> int:
        """What choosing goes by: strong, weak, or none. Both weak rules weigh the same."""
        return (0, 1, 1, 2)[self.likeness]


def relate(table: SessionFlowTable, a: BrokerId, b: BrokerId) -> Relation:
    """How alike ``a`` and ``b`` are by the session flow table: the best rule that holds."""
    shared = table.shared_clients(a, b)
    if len(shared) < 2:
        return Relation(Likeness.NONE)
    on_a = topic_sessions(table.behaviours(a, shared))
    on_b = topic_sessions(table.behaviours(b, shared))
    for pair in sorted(on_a.keys() & on_b.keys()):
        return Relation(Likeness.STRONG, pair, (on_a[pair], on_b[pair]))
    for pair in sorted(on_a):
        back = (pair[1], pair[0])
        if back in on_b:
            return Relation(Likeness.WEAK, pair, (on_a[pair], on_b[back]))
    return Relation(Likeness.WEAK_BY_PRESENCE, (shared[0], shared[1]))

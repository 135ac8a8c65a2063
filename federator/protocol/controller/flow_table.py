"""The session flow table: which client publishes and subscribes what, on which broker.

Two clients have a **topic session** on a broker when one publishes there what the other subscribes
there: X TSR(t, B) Y. Like phone numbers that talked through one exchange: only that they did, in
which direction, counts when another exchange must take over.

Clients on one broker only cannot relate two brokers. So those on several are indexed, and relating
two brokers looks only at these. Two brokers are equivalent in behaviour:

- **Strong** (A ~ B): the same ordered pair, X publishes and Y subscribes, has a topic session on
  both; the topics may differ.
- **Weak** (A ~~ B): the pair has one on both, in whichever order on each.
- **Weak by presence**, the third rule of equation (1): two clients publish or subscribe anything on
  both brokers. Table 11's B1 ~~ B2 holds by this rule only: on B2 both a and c just subscribe.

A pair is two different clients. The paper's printed rules are read as its Definitions 13 and 14
say; its table's "on/off" says whether the broker runs, and is ignored here: a broker that died is
exactly the one to be related.

Source: Chen 2020, 3.3, Definitions 10 to 14, equation (1), Table 11.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from federator.protocol.filters import FilterTrie, without_share
from federator.protocol.filters.sparse import is_sparse
from federator.protocol.messages.session_records import (
    FlowRow,
    encode_record,
    may_be_of,
    row_in,
)
from federator.protocol.types import BrokerId

COMPARED_CLIENTS_MAX = 64
"""Clients compared to relate two brokers: one pair decides, more only change which witness is
named."""

COMPARED_TOPICS_MAX = 256
"""Topics, and filters, of one such client that are compared."""

_NONE: dict[str, None] = {}

TopicSession = tuple[str, str]
"""A pair of clients: (publisher, subscriber)."""


@dataclass(slots=True)
class Behaviour:
    """The topics that one client publishes on one broker, and the filters that it subscribes."""

    publishes: set[str] = field(default_factory=set)
    subscribes: set[str] = field(default_factory=set)


class SessionFlowTable:
    """The rows of all brokers.

    A row is stored as the record that announces it, which is stored elsewhere in any case: there
    may be 100,000, and they are seldom parsed.
    """

    def __init__(self) -> None:
        self._texts: dict[BrokerId, dict[str, None]] = {}
        self._places: dict[str, Counter[BrokerId]] = {}  # rows per broker, by client
        self._roaming: set[str] = set()  # clients on several brokers

    def __len__(self) -> int:
        return sum(map(len, self._texts.values()))

    def rows(self, broker: BrokerId) -> list[FlowRow]:
        """The rows of ``broker``, in order."""
        return sorted(map(row_in, self.texts(broker)))

    def texts(self, broker: BrokerId) -> KeysView[str]:
        """The records of the rows of ``broker``; a view."""
        return self._texts.get(broker, _NONE).keys()

    def count(self, broker: BrokerId) -> int:
        return len(self.texts(broker))

    def add(self, broker: BrokerId, row: FlowRow, text: str | None = None) -> None:
        """Add ``row``, unless it is already there. ``text``: its record.

        A row that is too long for a record is left out.
        """
        text = text or encode_record(row)
        texts = self._texts.setdefault(broker, {})
        if text is None or text in texts:
            return
        texts[text] = None
        places = self._places.setdefault(row.client, Counter())
        places[broker] += 1
        if len(places) > 1:
            self._roaming.add(row.client)

    def discard(self, broker: BrokerId, row: FlowRow, text: str | None = None) -> None:
        """Remove ``row``, if it is there. ``text``: its record."""
        text = text or encode_record(row)
        texts = self._texts.get(broker)
        if texts is None or text not in texts:
            return
        del texts[text]
        if not texts:
            del self._texts[broker]
        elif is_sparse(texts):
            self._texts[broker] = dict(texts)
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
        for text in list(self.texts(broker)):
            self.discard(broker, row_in(text), text)

    def connected_at(self, client: str) -> list[BrokerId]:
        """Brokers where ``client`` is connected, ascending."""
        return [
            broker
            for broker in sorted(self._places.get(client, ()))
            if any(row.on for row in self._rows_of(client, broker))
        ]

    def _rows_of(self, client: str, broker: BrokerId) -> Iterator[FlowRow]:
        """The rows of ``client`` at ``broker``, in no stable order."""
        rows = (row_in(text) for text in self.texts(broker) if may_be_of(text, client))
        return (row for row in rows if row.client == client)

    def shared_clients(self, a: BrokerId, b: BrokerId) -> list[str]:
        """Clients with rows on both brokers, the first few in order."""
        places = self._places
        both = [c for c in sorted(self._roaming) if places[c][a] and places[c][b]]
        return both[:COMPARED_CLIENTS_MAX]

    def behaviours(self, broker: BrokerId, clients: Iterable[str]) -> dict[str, Behaviour]:
        behaviours = {client: Behaviour() for client in clients}
        rows = map(row_in, self.texts(broker))
        for row in sorted(row for row in rows if row.client in behaviours):
            behaviour = behaviours[row.client]
            side = behaviour.publishes if row.action == "pub" else behaviour.subscribes
            if len(side) < COMPARED_TOPICS_MAX:
                side.add(row.topic)
        return behaviours


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
    """How alike two brokers are, and which pair of clients proves it."""

    likeness: Likeness
    # The pair: publisher and subscriber on the first broker, or just two clients of both.
    clients: tuple[str, ...] = ()
    # The topics of their sessions on both brokers; empty by the third rule.
    topics: tuple[str, ...] = ()

    @property
    def degree(self) -> int:
        """The rank for choosing: strong, weak, or none. Both weak rules count the same."""
        return (0, 1, 1, 2)[self.likeness]


def relate(table: SessionFlowTable, a: BrokerId, b: BrokerId) -> Relation:
    """Relate ``a`` and ``b`` by the session flow table: the best rule that holds."""
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

"""The session flow table: who publishes and subscribes what, on which broker.

Two clients have a **topic session** on a broker when one publishes there what the other subscribes
there: X TSR(t, B) Y. Like phone numbers that talked through one exchange: only that they did, in
which direction, counts when another exchange must take over.

Clients on one broker only cannot relate two brokers. So those on several are kept apart, and
relating two brokers looks at nobody else.

Source: Chen 2020, 3.3, Definitions 10 to 14, Table 11.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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

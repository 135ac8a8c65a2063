"""Each client's subscriptions on our broker, as far as its log shows.

A subscription lives as long as its session. For an MQTT 3 client the log shows whether the session
outlives the connection (Clean Session); for an MQTT 5 client it does not (Session Expiry Interval
is never logged). So each subscription is either **sure** or **doubtful**: when it may have vanished
unseen it becomes doubtful, stays wanted, and waits for the broker's own count to settle it
(``reconciliation``). Interest never shrinks on a guess.

What an event does to a client's subscriptions:

=====================  ============================  =======================  ================
event                  MQTT 3, clean                 MQTT 3, persistent       MQTT 5, unknown
=====================  ============================  =======================  ================
connection ended       gone                          kept                     doubtful
connected, clean       gone                          gone                     gone
connected, not clean   gone                          kept, shared doubtful    doubtful
session expired        gone                          gone                     gone
=====================  ============================  =======================  ================

(Mosquitto 2.0.11 forgets the shared subscriptions of a resumed session, later ones do not.)

A client marked connected is certainly connected: one that only may be is not marked. So when as
many are marked as the broker counts, we know them all (``complete``).

Our own agents' clients (prefix ``federator-``) count towards the broker's number, but want nothing.

Source: docs/protocol.md 9; Mosquitto's ``connect__on_authorised`` and ``subs.c``.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

import msgspec

from federator.protocol.client_names import OWN_PREFIX
from federator.protocol.discovery.beginnings import CUT_MARK, is_shared, may_be, widened
from federator.protocol.discovery.interest import Interest
from federator.protocol.discovery.parameters import DiscoveryParameters

CUTS_COMPARED_MAX = 64
"""Beginnings compared with one unsubscribed filter; when there are more, all are doubted."""

WARN_PERCENT = 75


class Kind(Enum):
    """Subscriptions that the broker counts together."""

    PLAIN = "subscriptions"
    SHARED = "shared subscriptions"


class Fate(IntEnum):
    """What happens to a session when its connection ends."""

    UNKNOWN = 0
    ENDS = 1
    PERSISTS = 2


class ClientRecord(msgspec.Struct, array_like=True, frozen=True):
    """One client, as written to disk."""

    id: str
    fate: Fate
    connected: bool
    sure: list[str]
    doubtful: list[str]


@dataclass(slots=True)
class Client:
    """One client id: a connection, a session, or both."""

    fate: Fate = Fate.UNKNOWN
    connected: bool = False
    sure: dict[str, None] = field(default_factory=dict)  # keys only: half a set's memory
    doubtful: set[str] = field(default_factory=set)
    sure_cuts: set[str] = field(default_factory=set)  # sure ones with CUT_MARK
    shared: set[str] = field(default_factory=set)  # of all, those that the broker counts as shared
    resumes: bool = False  # it resumed a session: most likely it means to keep one
    qos: dict[str, int] = field(default_factory=dict)  # QoS of subscriptions, if ``resumes``


@dataclass(frozen=True, slots=True)
class ClientFlow:
    """The subscriptions of one client, for the session flow table."""

    id: str
    connected: bool
    # Whether the session outlives the connection, as far as the log shows: an MQTT 3 client without
    # clean session, an MQTT 5 client without clean start.
    keeps: bool
    filters: dict[str, int]  # each with its QoS; 1 where no log line gave it


@dataclass(frozen=True, slots=True)
class Tally:
    """How many subscriptions of one kind (plain or shared) we know.

    Doubtful ones are split by what we know of their session: all of one class tend to share a fate,
    for instance when the broker restarted.
    """

    sure: int = 0
    doubtful_persistent: int = 0
    doubtful_other: int = 0

    @property
    def most(self) -> int:
        """The number of subscriptions if all doubtful ones are alive."""
        return self.sure + self.doubtful_persistent + self.doubtful_other


class Alive(NamedTuple):
    """Whether doubtful subscriptions are alive: of persistent sessions, and of others."""

    persistent: bool
    other: bool


@dataclass(eq=False)
class SubscriptionTable:
    """Clients and their subscriptions; keeps ``interest`` up to date."""

    interest: Interest
    parameters: DiscoveryParameters
    complete: bool = False  # all connected clients are known
    connected: int = 0  # connected clients, as far as the log shows
    refused: int = 0  # entries for which there was no room
    revision: int = 0  # grows with every change

    def __post_init__(self) -> None:
        self._clients: dict[str, Client] = {}
        self._filters = 0
        self._bytes = 0
        self._guesses: set[tuple[str, str]] = set()
        self._touched: set[str] = set()  # clients with any sure subscription since the last gap
        self._left = False  # some were doubtful before that gap
        # Clients and filters logged since we reconnected; ``None``: not recorded.
        self._logged_since_up: dict[str, set[str]] | None = None
        # Clients without persistent session that are not connected under the name we know, but
        # whose subscriptions must exist, by the count.
        self._presumed: set[str] = set()
        self._counted = (0, dict.fromkeys(Kind, Tally()))

    # State

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def full_percent(self) -> int:
        """How full the table is, by the bound that is nearest."""
        return max(
            100 * self._filters // self.parameters.filters_max,
            100 * self._bytes // self.parameters.bytes_max,
            100 * len(self._clients) // self.parameters.clients_max,
        )

    @property
    def guesses(self) -> set[tuple[str, str]]:
        """Doubtful (client, filter), some of which never existed: readings of ambiguous lines."""
        self._guesses = {
            (id, filter)
            for id, filter in self._guesses
            if id in self._clients and filter in self._clients[id].doubtful
        }
        return self._guesses

    @property
    def mixed(self) -> bool:
        """Whether some doubtful subscriptions became so otherwise than by the last gap."""
        touched = (client_id for client_id in self._touched & self._clients.keys())
        return self._left or any(self._clients[id].doubtful for id in touched)

    def is_connected(self, id: str) -> bool:
        """Whether the client is connected, as far as the log shows."""
        return id in self._clients and self._clients[id].connected

    def filters_of(self, id: str) -> frozenset[str]:
        """The client's filters, sure and doubtful."""
        client = self._clients.get(id)
        return frozenset(client.doubtful.union(client.sure)) if client else frozenset()

    def flow(self) -> Iterator[ClientFlow]:
        """The subscriptions of each client other than our own."""
        for id, client in self._clients.items():
            if id.startswith(OWN_PREFIX):
                continue
            filters = {
                filter: client.qos.get(filter, 1)
                for filter in client.doubtful.union(client.sure)
                if not filter.endswith(CUT_MARK)
            }
            keeps = client.fate is Fate.PERSISTS or (client.fate is Fate.UNKNOWN and client.resumes)
            yield ClientFlow(id, client.connected, keeps, filters)

    def tallies(self) -> dict[Kind, Tally]:
        """Count the subscriptions of each kind. Walks all clients when the table has changed."""
        if self._counted[0] != self.revision:
            plain, shared = [0, 0, 0], [0, 0, 0]
            for client in self._clients.values():
                doubt = 1 if client.fate is Fate.PERSISTS else 2
                for column, filters in ((0, client.sure.keys()), (doubt, client.doubtful)):
                    apart = len(filters & client.shared) if client.shared else 0
                    plain[column] += len(filters) - apart
                    shared[column] += apart
            tallies = {Kind.PLAIN: Tally(*plain), Kind.SHARED: Tally(*shared)}
            self._counted = (self.revision, tallies)
        return self._counted[1]

    # Certain events

    def on_connected(self, id: str, *, clean: bool, protocol: int) -> None:
        """Follow a client that connected; an older connection of the same id thereby ended."""
        if (client := self._client(id)) is None:
            return
        if clean or client.fate is Fate.ENDS:
            self._drop_all(id, client)
        elif client.fate is Fate.PERSISTS:
            self._doubt(client, client.sure.keys() & client.shared)
        else:
            self._doubt(client)
        self._set_connected(client, True)
        if self._logged_since_up is not None:
            self._logged_since_up.setdefault(id, set())
        client.resumes = not clean
        if clean:
            client.qos = {}
        if protocol >= 5:
            client.fate = Fate.UNKNOWN
        else:
            client.fate = Fate.ENDS if clean else Fate.PERSISTS
        self.revision += 1

    def on_ended(self, id: str, *, expired: bool = False) -> None:
        """Follow the end of a connection; ``expired``: the broker dropped the session as well."""
        if (client := self._clients.get(id)) is None:
            self._doubt_presumed()
            return
        if expired or client.fate is Fate.ENDS:
            self._drop_all(id, client)
        elif client.fate is Fate.UNKNOWN:
            self._doubt(client)
        self._disconnect(id, client)

    def on_subscribed(self, id: str, filter: str, qos: int = 1) -> bool:
        """Add a subscription; ``False`` when the table is full and did not store it."""
        if (client := self._client(id)) is None:
            return False
        self._set_connected(client, True)
        stored = filter in client.sure or filter in client.doubtful
        if not stored and not self._store(id, client, filter):
            return False
        self._confirm(client, filter)
        if self._logged_since_up is not None:
            self._logged_since_up.setdefault(id, set()).add(filter)
        if client.resumes:
            client.qos[filter] = qos
        self.revision += 1
        return True

    def on_unsubscribed(self, id: str, filter: str) -> None:
        """Drop a subscription. A stored beginning of ``filter`` becomes doubtful."""
        if (client := self._clients.get(id)) is None:
            self._doubt_presumed()
            return
        if not filter.endswith(CUT_MARK) and (filter in client.sure or filter in client.doubtful):
            self._drop(id, client, filter)
        else:
            self._doubt_cuts(client, filter)
        self.revision += 1

    # Possible events

    def doubt_connected(self, id: str) -> None:
        """Doubt what a connection of this client would have changed: perhaps it connected."""
        self.complete = False
        if (client := self._clients.get(id)) is not None:
            self._doubt(client)
            client.fate = Fate.UNKNOWN
            self.revision += 1

    def doubt_subscribed(self, id: str, filter: str) -> bool:
        """Add a doubtful subscription; ``False`` when the table is full."""
        if (client := self._client(id)) is None:
            return False
        if filter not in client.sure and filter not in client.doubtful:
            if not self._store(id, client, filter):
                return False
            client.doubtful.add(filter)
            self._guesses.add((id, filter))
        return True

    def doubt_client(self, id: str) -> None:
        """Doubt all subscriptions of this client: perhaps its connection or session ended."""
        self.complete = False
        if (client := self._clients.get(id)) is not None:
            self._doubt(client)
            self._disconnect(id, client)

    def doubt_filter(self, id: str, filter: str) -> None:
        """Doubt a subscription: perhaps this client unsubscribed."""
        if (client := self._clients.get(id)) is not None:
            self._doubt(client, {filter} & client.sure.keys())
            self._doubt_cuts(client, filter)

    def on_gap(self) -> None:
        """Doubt all subscriptions but our own: lines were missed.

        Visits only clients with sure subscriptions since the last gap.
        """
        self.complete = False
        self._left = any(client.doubtful for client in self._clients.values())
        touched, self._touched = self._touched, set()
        for id in sorted(touched & self._clients.keys()):
            if id.startswith(OWN_PREFIX):
                self._forget_if_empty(id, self._clients[id])
            else:
                self._doubt(self._clients[id])
                self._disconnect(id, self._clients[id])

    def on_reconnected(self) -> None:
        """Record log lines from now on: it may turn out that the broker restarted before."""
        self._logged_since_up = {}

    def on_restart_known(self, *, restarted: bool) -> None:
        """Doubt what was logged before ``on_reconnected``, if the broker ``restarted`` since.

        A restarted broker may have lost sessions without a line, and lines about them meanwhile.
        """
        logged, self._logged_since_up = self._logged_since_up, None
        if logged is None or not restarted:
            return
        self.complete = False
        self._left |= any(c.doubtful for id, c in self._clients.items() if id in self._touched)
        for id, client in list(self._clients.items()):
            if not id.startswith(OWN_PREFIX):
                self._doubt(client, client.sure.keys() - logged.get(id, set()))
                if id not in logged:
                    self._touched.discard(id)
                    self._disconnect(id, client)

    def set_own(self, id: str, filters: frozenset[str]) -> None:
        """Note that one of our own clients is connected and holds exactly ``filters``."""
        assert id.startswith(OWN_PREFIX), f"not a client of ours: {id!r}"
        if (client := self._client(id)) is None:
            return
        for filter in sorted(client.doubtful.union(client.sure) - filters):
            self._drop(id, client, filter)
        for filter in sorted(filters):
            self.on_subscribed(id, filter)
        self._set_connected(client, True)

    # Settling by the broker's count

    def settle(self, kind: Kind, alive: Alive) -> None:
        """Confirm or drop the doubtful subscriptions of one kind, as the count proved."""
        shared = kind is Kind.SHARED
        for id, client in list(self._clients.items()):
            survive = alive.persistent if client.fate is Fate.PERSISTS else alive.other
            for filter in sorted(f for f in client.doubtful if is_shared(f) is shared):
                if survive:
                    self._touched.add(id)
                    if client.fate is not Fate.PERSISTS and not client.connected:
                        self._presumed.add(id)
                    self._confirm(client, filter)
                else:
                    self._drop(id, client, filter)
            self._forget_if_empty(id, client)
        self.revision += 1

    def records(self, is_kept: Callable[[str], bool]) -> list[ClientRecord]:
        """Records of the clients that ``is_kept``, with filters in no stable order.

        A client may have any number of filters, and sorting them would block the event loop.
        """
        return [
            ClientRecord(
                id, client.fate, client.connected, list(client.sure), list(client.doubtful)
            )
            for id, client in self._clients.items()
            if is_kept(id)
        ]

    def load(self, records: list[ClientRecord], guesses: Iterable[tuple[str, str]] = ()) -> None:
        """Fill an empty table as it was when written."""
        assert not self._clients, "load is for an empty table"
        for record in records:
            if (client := self._client(record.id)) is None:
                break
            client.fate = record.fate
            for filter in record.sure:
                if self._store(record.id, client, filter):
                    self._confirm(client, filter)
            for filter in record.doubtful:
                if filter not in client.sure and self._store(record.id, client, filter):
                    client.doubtful.add(filter)
            self._set_connected(client, record.connected)
        self._guesses = set(guesses)

    # Helpers

    def _client(self, id: str) -> Client | None:
        client = self._clients.get(id)
        if client is None:
            size = len(id.encode())
            bounds = self.parameters
            if len(self._clients) >= bounds.clients_max or self._bytes + size > bounds.bytes_max:
                self.refused += 1
                self.complete = False
                return None
            client = self._clients[id] = Client()
            self._bytes += size
        self._touched.add(id)
        return client

    def _set_connected(self, client: Client, connected: bool) -> None:
        self.connected += int(connected) - int(client.connected)
        client.connected = connected

    def _disconnect(self, id: str, client: Client) -> None:
        self._set_connected(client, False)
        self._forget_if_empty(id, client)
        self.revision += 1

    def _store(self, id: str, client: Client, filter: str) -> bool:
        size, bounds = len(filter.encode()), self.parameters
        if self._filters >= bounds.filters_max or self._bytes + size > bounds.bytes_max:
            self.refused += 1
            self._forget_if_empty(id, client)
            return False
        self.revision += 1
        self._filters += 1
        self._bytes += size
        if is_shared(filter):
            client.shared.add(filter)
        self._count(id, filter, 1)
        return True

    def _drop(self, id: str, client: Client, filter: str) -> None:
        client.sure.pop(filter, None)
        client.sure_cuts.discard(filter)
        client.doubtful.discard(filter)
        client.shared.discard(filter)
        client.qos.pop(filter, None)
        if self._logged_since_up is not None:
            self._logged_since_up.get(id, set()).discard(filter)
        self.revision += 1
        self._filters -= 1
        self._bytes -= len(filter.encode())
        self._count(id, filter, -1)

    def _drop_all(self, id: str, client: Client) -> None:
        for filter in sorted(client.doubtful.union(client.sure)):
            self._drop(id, client, filter)

    def _confirm(self, client: Client, filter: str) -> None:
        client.doubtful.discard(filter)
        client.sure[filter] = None
        if filter.endswith(CUT_MARK):
            client.sure_cuts.add(filter)

    def _doubt(self, client: Client, filters: set[str] | None = None) -> None:
        """Make ``filters``, some of the sure ones, doubtful; all of them by default."""
        moved = set(client.sure) if filters is None else filters
        self.revision += len(moved)
        client.doubtful |= moved
        client.sure_cuts -= moved
        if filters is None:
            client.sure = {}
        for filter in moved if client.sure else ():
            client.sure.pop(filter, None)

    def _doubt_presumed(self) -> None:
        """Doubt subscriptions confirmed without a log line: their holder has another client id."""
        presumed, self._presumed = self._presumed, set()
        for id in sorted(presumed & self._clients.keys()):
            if not self._clients[id].connected:  # otherwise the log reported it by now
                self._doubt(self._clients[id])

    def _doubt_cuts(self, client: Client, filter: str) -> None:
        """Doubt the stored beginnings that ``filter`` may start with."""
        cuts = set(client.sure_cuts)
        if len(cuts) <= CUTS_COMPARED_MAX:
            cuts = {held for held in cuts if may_be(held, filter)}
        self._doubt(client, cuts)

    def _forget_if_empty(self, id: str, client: Client) -> None:
        if not (client.connected or client.sure or client.doubtful) and id in self._clients:
            del self._clients[id]
            self._touched.discard(id)
            if self._logged_since_up is not None:
                self._logged_since_up.pop(id, None)
            self._bytes -= len(id.encode())

    def _count(self, id: str, filter: str, change: int) -> None:
        """Add or remove one client's reason in ``interest`` to want ``filter``."""
        if filter.endswith(CUT_MARK) and not id.startswith(OWN_PREFIX):
            self.interest.count(widened(filter), change, by_client=False)
        elif not id.startswith(OWN_PREFIX):
            self.interest.count(filter, change, client=id)

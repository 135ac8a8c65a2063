"""How an agent stands in the federation, in one word, and what keeps it from a better one.

Whether an agent serves its own broker is one question; whether any agent at the other end listens
is another: a shop may be open in a street that is closed. What hinders a link shows at one of its
ends only, and mostly by missing messages. So from what was received (connections, hellos, the
neighbours they list, refused hellos) the likeliest reason is reported for each address, in words
that say what to check.

Source: docs/observability.md, "Alone, partly, joined, degraded".
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from federator.protocol.links.links import Links
from federator.protocol.links.neighbour import LinkConnection, Neighbour
from federator.protocol.types import BrokerId, ConnId, Millis

MISSED_MS: Final = 3_600_000
"""For so long a broker is missed that had found us by itself: an operator that removes a broker for
good must not be reminded for ever.
"""

REASONS_MAX: Final = 20

NOT_HEARD: Final = "connected, but its agent is not heard"
SHAKING_HANDS: Final = "shaking hands"
NO_LEAF: Final = "A leaf is heard by its hub alone"
TO_MEND: Final = 'correct broker.advertise there, or set links.dial = "out" there'


class Word(StrEnum):
    """Our standing, from nothing wrong to wrong."""

    JOINED = "joined"  # every link that is configured or missed is up
    ALONE = "alone"  # no link is up; without reasons: none is wanted
    PARTLY = "partly"  # some links are up, others that are wanted are not
    DEGRADED = "degraded"  # a neighbour refuses us, or we refuse one: it will not heal by itself


@dataclass(frozen=True, slots=True)
class Way:
    """One address of a neighbour's broker, as the driver sees it."""

    address: str
    expected_id: BrokerId | None
    kept: bool  # the operator configured it
    conn: ConnId | None  # ``None`` while it is not connected,
    failure: str = ""  # and then the reason
    refused: bool = False  # because the broker there refuses our connection
    peer: str = ""  # the IP address that was connected to, if any
    outbox_refused: bool = False  # the broker there does not let us subscribe to our outbox


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """A hello that was refused; id and address are what the hello says."""

    id: BrokerId
    address: str
    reason: str


@dataclass(frozen=True, slots=True)
class LinkFinding:
    """The state of one address. ``reason`` is empty where a link is up."""

    neighbour: BrokerId | None
    up: bool
    reason: str = ""
    refuses: bool = False  # one side refuses the other: it is not a mere absence
    unheard: bool = False  # without a change there will never be a hello from it


@dataclass(frozen=True, slots=True)
class Standing:
    """Our standing, and what is in the way."""

    word: Word
    reasons: tuple[str, ...] = ()

    @property
    def settling(self) -> bool:
        """Whether the state of some link will be clear soon."""
        return any(reason.endswith(SHAKING_HANDS) for reason in self.reasons)

    @property
    def well(self) -> bool:
        """Whether there is nothing to repair."""
        return self.word is Word.JOINED or (self.word is Word.ALONE and not self.reasons)

    def __str__(self) -> str:
        return f"{self.word}: {'; '.join(self.reasons)}" if self.reasons else str(self.word)


@dataclass(frozen=True, slots=True)
class LinkJudge:
    """Finds the state of addresses.

    Args:
        turned_away: Hellos refused lately, the newest of each broker.
        leaf: We are a leaf, and connect to a hub.
    """

    links: Links
    turned_away: Mapping[BrokerId, TurnedAway]
    leaf: bool = False

    def find(self, way: Way, *, now_ms: Millis) -> LinkFinding:
        """The state of ``way``."""
        links = self.links
        connection = links.connections.get(way.conn) if way.conn is not None else None
        if connection is None:
            id_ = self._speaks_from(way.address) if way.expected_id is None else way.expected_id
            reason = self._why_not_there(way, id_)
            return LinkFinding(id_, up=False, reason=reason, refuses=way.refused)
        if connection.found == links.self_id:
            return LinkFinding(None, up=False, reason="this address leads to our own broker")
        id_ = self._broker_at(connection)
        if way.expected_id not in (None, id_):
            reason = f"broker {id_} is there, not {way.expected_id}"
            return LinkFinding(way.expected_id, up=False, reason=reason, refuses=True)
        neighbour = links.neighbours.get(id_) if id_ is not None else None
        if neighbour is not None and neighbour.up:
            same = neighbour.conn == way.conn
            return LinkFinding(id_, up=same, reason="" if same else "another address leads there")
        return self._down(way, connection, id_, neighbour, now_ms)

    def _why_not_there(self, way: Way, id_: BrokerId | None) -> str:
        """Why the address is not connected; if its agent sends us hellos, that is half a link."""
        failure = way.failure or "connecting"
        neighbour = self.links.neighbours.get(id_) if id_ is not None else None
        if not way.failure or neighbour is None or neighbour.hello is None or neighbour.up:
            return failure
        one_way = f"one way only: its agent speaks here, and we do not reach its broker ({failure})"
        return f"{one_way}: {TO_MEND}"

    def _unheard(self, way: Way, connection: LinkConnection, id_: BrokerId | None) -> LinkFinding:
        """The likeliest reason why we receive nothing from a broker that we send to."""
        ours = self.links.address
        if way.outbox_refused:
            reason = "its broker does not let us read what is said to us there: let its operator "
            reason += "print an ACL with federator doctor --acl --outbound ID, ID being ours"
            return LinkFinding(id_, up=False, reason=reason, refuses=True, unheard=True)
        if connection.takes_outbox and not self.leaf:
            reason = f"{NOT_HEARD}: is it running, does it keep an outbox for us (links.dial_back "
            reason += f"there), and may we read it (ACL)? {NO_LEAF}"
            return LinkFinding(id_, up=False, reason=reason)
        if not connection.takes_outbox and leads_nowhere(ours, way.peer):
            reason = f"one way only: nobody there can connect to our broker at {ours}, so its "
            reason += 'agent is not heard: correct broker.advertise, or set links.dial = "out"'
            return LinkFinding(id_, up=False, reason=reason, refuses=True, unheard=True)
        if self.leaf:
            reason = f"{NOT_HEARD}: is it running, has it [[leaves]] with id = "
            reason += f"{self.links.self_id} (a leaf has none: name a hub), and may we read our "
            reason += "outbox there (ACL)?"
            return LinkFinding(id_, up=False, reason=reason)
        at = ours or "no address (broker.advertise)"
        reason = f"{NOT_HEARD}: is it running, does it refuse us (security or keys differ: "
        reason += f"trust.refused in its log), and does it reach our broker at {at}? If nobody "
        reason += f'can connect to ours: links.dial = "out". {NO_LEAF}'
        return LinkFinding(id_, up=False, reason=reason)

    def _broker_at(self, connection: LinkConnection) -> BrokerId | None:
        """The broker at the other end: as identified, as expected, or as the addresses suggest."""
        for candidate in (connection.neighbour, connection.found, connection.expected_id):
            if candidate is not None:
                return candidate
        if (id_ := self._speaks_from(connection.address)) is not None:
            return id_
        nameless = [c for c in self.links.connections.values() if c.neighbour is None]
        seen = [n.id for n in self.links.neighbours.values() if n.hello and n.conn is None]
        seen += [id_ for id_ in self.turned_away if self._is_no_link(id_)]
        return seen[0] if len(nameless) == 1 and len(seen) == 1 else None

    def _speaks_from(self, address: str) -> BrokerId | None:
        """The broker that announces ``address``, in an accepted or a refused hello."""
        for neighbour in self.links.neighbours.values():
            if neighbour.hello is not None and neighbour.hello.address == address:
                return neighbour.id
        strangers = self.turned_away.values()
        return next((stranger.id for stranger in strangers if stranger.address == address), None)

    def _is_no_link(self, id_: BrokerId) -> bool:
        neighbour = self.links.neighbours.get(id_)
        return neighbour is None or neighbour.hello is None

    def _down(
        self,
        way: Way,
        connection: LinkConnection,
        id_: BrokerId | None,
        known: Neighbour | None,
        now_ms: Millis,
    ) -> LinkFinding:
        """Why the link over ``connection`` is not up."""
        links = self.links
        stranger = self.turned_away.get(id_) if id_ is not None else None
        if known is not None and known.hello is not None:
            since_ms = known.unheard_since_ms
            if since_ms is None:
                return LinkFinding(id_, up=False, reason=known.reason)
            deaf_ms = now_ms - max(since_ms, connection.since_ms)
            if deaf_ms <= links.parameters.hello_timeout_ms:
                return LinkFinding(id_, up=False, reason=SHAKING_HANDS)
            reason = "it speaks and does not hear us: it refuses us (trust.refused in its log says "
            reason += "why), or its broker drops what we publish there (ACL)"
            return LinkFinding(id_, up=False, reason=reason, refuses=True)
        if stranger is not None:
            reason = f"who speaks as broker {id_} is turned away: {stranger.reason}"
            return LinkFinding(id_, up=False, reason=reason, refuses=True)
        if now_ms - connection.since_ms <= links.parameters.hello_timeout_ms:
            return LinkFinding(id_, up=False, reason=SHAKING_HANDS)
        if known is not None and known.ups:
            return LinkFinding(id_, up=False, reason=known.reason)
        return self._unheard(way, connection, id_)


def leads_nowhere(ours: str, peer: str) -> bool:
    """Whether a host with the IP address ``peer`` surely cannot connect to ``ours``, a URL.

    That is the case for a loopback address of ours from another host, and for a private address
    from the internet. Names may be anything, and private addresses of two hosts may be in one
    network.
    """
    host = urlsplit(ours).hostname or ""
    try:
        there, here = ip_address(peer), ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return False
    if here.is_loopback:
        return not there.is_loopback
    return there.is_global and not here.is_global


def stand(
    judge: LinkJudge, ways: Sequence[Way], *, hindrances: Iterable[str] = (), now_ms: Millis
) -> Standing:
    """Determine our standing.

    Args:
        hindrances: Other faults that will not heal by themselves.
    """
    links = judge.links
    wrong = [*hindrances, *_doubles(links, now_ms)]
    missing: list[str] = []
    reached = set[BrokerId | None]()
    for way in ways:
        finding = judge.find(way, now_ms=now_ms)
        reached.add(finding.neighbour)
        neighbour = (
            links.neighbours.get(finding.neighbour) if finding.neighbour is not None else None
        )
        elsewhere = neighbour is not None and neighbour.up and not finding.refuses
        if finding.up or elsewhere or not (way.kept or _is_missed(neighbour, now_ms)):
            continue
        prefix = f"broker {finding.neighbour} at " if finding.neighbour is not None else ""
        (wrong if finding.refuses else missing).append(f"{prefix}{way.address}: {finding.reason}")
    missing += _unreached(links, reached, now_ms)
    reasons = tuple((wrong + missing)[:REASONS_MAX])
    if wrong:
        return Standing(Word.DEGRADED, reasons)
    if not links.up:
        return Standing(Word.ALONE, reasons)
    return Standing(Word.PARTLY if missing else Word.JOINED, reasons)


def _unreached(links: Links, reached: Set[BrokerId | None], now_ms: Millis) -> Iterable[str]:
    """Brokers that send us hellos, and that we should dial back but do not reach."""
    if not links.parameters.dial_back:
        return
    for neighbour in links.neighbours.values():
        if neighbour.hello is None or neighbour.up or neighbour.id in reached:
            continue
        if now_ms - neighbour.first_heard_ms > links.parameters.hello_timeout_ms:
            at = neighbour.hello.address
            how = f"is not dialled at {at}" if at else "names no address (its broker.advertise)"
            yield f"broker {neighbour.id}: its agent speaks here, and {how}"


def _is_missed(neighbour: Neighbour | None, now_ms: Millis) -> bool:
    """Whether a broker that is not configured should be there: it sends hellos, or did lately."""
    if neighbour is None:
        return False
    return neighbour.hello is not None or bool(
        neighbour.ups and now_ms - neighbour.heard_at_ms < MISSED_MS
    )


def _doubles(links: Links, now_ms: Millis) -> Iterable[str]:
    """Two agents with the same id, ours or a neighbour's."""
    for_ms = links.parameters.hello_timeout_ms
    if links.double is not None and now_ms - links.double[1] < for_ms:
        yield f"another agent has our id {links.self_id}, at {links.double[0]}: stop one of them"
    for neighbour in links.neighbours.values():
        if at := neighbour.namesakes(now_ms, for_ms=for_ms):
            yield f"two agents have id {neighbour.id}, at {at[0]} and {at[1]}: stop one of them"

"""What a client missed while it went from one broker to the next.

Three things may have happened to a publication that its subscriptions match: its lost broker gave
it to the client, its new broker did or will, or nobody does: it was still in the lost broker's
queue, or it was published before the new broker's subscription was known where it was published.
The last kind is what it is given here. All that is known of publications is what came through this
gateway (``journal``), and, in a planned move, what its old broker still gave (``drained``).

What it got is read from the blocks as they came (``recent_deliveries``). Publications equal in
topic and payload are told apart by their number only.

A broker may deny a client some topics without saying so. So nothing is given on a topic on which no
broker ever gave it anything, unless the operator says that there are no such rules.

Source: docs/gateway.md, "What a client missed".
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from federator.gateway import wire
from federator.gateway.session.journal import Publication
from federator.gateway.session.session import ClientSession
from federator.gateway.session.subscriptions import Subscription
from federator.gateway.wire.kinds import V5, Kind, Version
from federator.protocol.filters import FilterTrie
from federator.protocol.types import Millis

_Content = tuple[bytes, bytes]

_ALWAYS: Final = Millis(-(2**63))
_NO_ID: Final = 1  # stands where the packet id will

EXACT_MS: Final = 1_000
"""How long what was published at QoS 2 may take to come by itself."""

EARLY_MS: Final = 2_000
"""How much sooner than its PUBACK a publication may come to a subscriber."""


def missed(
    session: ClientSession,
    publications: Iterable[Publication],
    *,
    drained: Iterable[bytes] = (),
    unseen_topics: bool,
    since_ms: Millis = _ALWAYS,
) -> list[bytes]:
    """PUBLISH packets for the client, in the order in which they were published.

    Args:
        session: The client's, whose new broker has its subscriptions.
        publications: What came through this gateway lately, oldest first.
        drained: What its old broker gave it since it left that.
        unseen_topics: Also on topics on which it never got anything.
        since_ms: What it got before is none of these.
    """
    got = contents(session.recent.since(since_ms), session.version)
    wanted = _Wanted(session)
    missing: list[bytes] = []
    left = got.copy()  # what was drained is in the journal, too
    for late in drained:
        topic, payload, _ = wire.read_payload(late, session.version)
        if not _take(left, (topic, payload)):
            missing.append(late)
            got[topic, payload] += 1
    for publication in publications:
        matching = wanted.by(publication.topic, publication.acked_ms)
        if not matching or not (unseen_topics or session.recent.has_seen(publication.topic)):
            continue
        content = publication.topic, publication.payload
        packet = _for(session, publication, matching)
        if packet is not None and not _take(got, content):
            missing.append(packet)
    return missing


def missed_before(
    session: ClientSession,
    publications: Iterable[Publication],
    *,
    drained: Iterable[bytes],
    unseen_topics: bool,
) -> list[bytes]:
    """What to give before the first delivery of a new broker. For the arguments see ``missed``.

    What was published later is likely to come by the new broker, too. At QoS 2 it must not come
    twice, so what is recent is left to the checks that follow a death.
    """
    settled = [
        each
        for each in publications
        if each.qos == 1 or each.acked_ms < session.restored_ms - EXACT_MS
    ]
    return missed(session, settled, drained=drained, unseen_topics=unseen_topics)


def contents(blocks: Iterable[bytes], version: Version) -> Counter[_Content]:
    """How often each topic and payload came at QoS 1 and 2."""
    got: Counter[_Content] = Counter()
    for block in blocks:
        whole, packets = wire.Splitter(firsts=wire.FROM_SERVER).feed(block)
        for first, start, _, end in packets:
            if first & 0xF0 == Kind.PUBLISH and first & wire.QOS:
                topic, payload, _ = wire.read_payload(whole[start:end], version)
                got[topic, payload] += 1
    return got


def _take(counter: Counter[_Content], content: _Content) -> bool:
    """Whether one of ``content`` is left; it is then gone."""
    if counter.get(content, 0) <= 0:
        return False
    counter[content] -= 1
    return True


class _Wanted:
    """The client's filters that ask for QoS 1 or 2, by topic."""

    def __init__(self, session: ClientSession) -> None:
        self._trie = FilterTrie()
        self._granted = session.subscriptions.granted
        self._cache: dict[bytes, tuple[Subscription, ...]] = {}
        for filter, subscription in self._granted.items():
            if subscription.granted and not filter.startswith("$share/"):
                self._trie.add(filter)

    def by(self, topic: bytes, acked_ms: Millis) -> tuple[Subscription, ...]:
        """Subscriptions that stood when the publication was acknowledged and match its topic."""
        matching = self._cache.get(topic)
        if matching is None:
            filters = self._trie.match(topic.decode())
            matching = self._cache[topic] = tuple(self._granted[filter] for filter in filters)
        return tuple(each for each in matching if each.since_ms <= acked_ms)


def _for(
    session: ClientSession, publication: Publication, matching: tuple[Subscription, ...]
) -> bytes | None:
    """The packet the client gets; ``None`` when it published that itself and wants none of it."""
    if publication.client == session.connect.client_id:
        matching = tuple(each for each in matching if not each.options & wire.NO_LOCAL)
        if not matching:
            return None
    qos = min(publication.qos, max(each.granted for each in matching))
    as_published = any(each.options & wire.RETAIN_AS_PUBLISHED for each in matching)
    properties = wire.without(
        publication.properties, wire.Property.TOPIC_ALIAS, wire.Property.SUBSCRIPTION_ID
    )
    if session.version == V5:
        names = [each.identifier for each in matching if each.identifier]
        properties += tuple((wire.Property.SUBSCRIPTION_ID, name) for name in names)
    return wire.write_publish(
        publication.topic.decode(),
        publication.payload,
        version=session.version,
        qos=qos,
        retain=bool(publication.packet[0] & wire.RETAIN and as_published),
        packet_id=_NO_ID,
        properties=properties,
    )

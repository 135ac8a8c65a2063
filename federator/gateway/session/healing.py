"""What a client missed while it moved from one broker to the next.

A publication that matches its subscriptions has one of three fates. The lost broker delivered it,
or the new broker does, or neither: it was still in the lost broker's queue, or was published before
the new broker's subscription was known where it was published. Publications of the last kind are
sent from here. We only know those that came through this gateway (``journal``) and, in a planned
move, those that the old broker still delivered (``drained``).

What the client got is read from its delivered blocks (``recent_deliveries``). Publications with
equal topic and payload can only be counted.

A broker may deny a client some topics silently. So nothing is sent on a topic on which no broker
ever delivered to the client, unless the operator says that there are no such rules.

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
_NO_ID: Final = 1  # a placeholder: ``Downstream`` sets the packet id

EXACT_MS: Final = 1_000
"""How long a QoS 2 publication may take to arrive by itself."""

EARLY_MS: Final = 2_000
"""How much earlier than its PUBACK a publication may reach a subscriber."""


def missed(
    session: ClientSession,
    publications: Iterable[Publication],
    *,
    drained: Iterable[bytes] = (),
    unseen_topics: bool,
    since_ms: Millis = _ALWAYS,
) -> list[bytes]:
    """PUBLISH packets for the client, in the order of publication.

    Args:
        session: The client's session, with its subscriptions at the new broker.
        publications: Recent publications, oldest first.
        drained: What the old broker delivered after the client left it.
        unseen_topics: Also send on topics on which the client never received anything.
        since_ms: When the first of ``publications`` was acknowledged, at the earliest: deliveries
            long before then are not compared.
    """
    got = contents(session.recent.since(Millis(since_ms - EARLY_MS)), session.version)
    subscribed = _WantedFilters(session)
    missing: list[bytes] = []
    left = got.copy()  # drained publications are in the journal, too
    for late in drained:
        topic, payload, _ = wire.read_payload(late, session.version)
        if not _take(left, (topic, payload)):
            missing.append(late)
            got[topic, payload] += 1
    for publication in publications:
        matching = subscribed.by(publication.topic, publication.acked_ms)
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
    """What to send before the first delivery of a new broker. For the arguments see ``missed``.

    Later publications are likely to arrive by the new broker, too. At QoS 2 they must not arrive
    twice, so recent ones are left to the checks that follow a death.
    """
    settled = [p for p in publications if p.qos == 1 or p.acked_ms < session.restored_ms - EXACT_MS]
    return missed(session, settled, drained=drained, unseen_topics=unseen_topics)


def contents(blocks: Iterable[bytes], version: Version) -> Counter[_Content]:
    """How often each topic and payload was delivered at QoS 1 and 2."""
    got: Counter[_Content] = Counter()
    for block in blocks:
        whole, packets = wire.Splitter(firsts=wire.FROM_SERVER).feed(block)
        for first, start, _, end in packets:
            if first & 0xF0 == Kind.PUBLISH and first & wire.QOS:
                topic, payload, _ = wire.read_payload(whole[start:end], version)
                got[topic, payload] += 1
    return got


def _take(counter: Counter[_Content], content: _Content) -> bool:
    """Remove one ``content`` from ``counter``; return whether there was one."""
    if counter.get(content, 0) <= 0:
        return False
    counter[content] -= 1
    return True


class _WantedFilters:
    """The client's filters granted QoS 1 or 2, by topic."""

    def __init__(self, session: ClientSession) -> None:
        self._trie = FilterTrie()
        self._granted = session.subscriptions.granted
        self._cache: dict[bytes, tuple[Subscription, ...]] = {}
        for filter, subscription in self._granted.items():
            if subscription.granted and not filter.startswith("$share/"):
                self._trie.add(filter)

    def by(self, topic: bytes, acked_ms: Millis) -> tuple[Subscription, ...]:
        """Subscriptions that match ``topic`` and were granted no later than ``acked_ms``."""
        matching = self._cache.get(topic)
        if matching is None:
            filters = self._trie.match(topic.decode())
            matching = self._cache[topic] = tuple(self._granted[filter] for filter in filters)
        return tuple(s for s in matching if s.since_ms <= acked_ms)


def _for(
    session: ClientSession, publication: Publication, matching: tuple[Subscription, ...]
) -> bytes | None:
    """The packet for the client; ``None`` if it is its own publication and No Local is set."""
    if publication.client == session.connect.client_id:
        matching = tuple(s for s in matching if not s.options & wire.NO_LOCAL)
        if not matching:
            return None
    qos = min(publication.qos, max(s.granted for s in matching))
    as_published = any(s.options & wire.RETAIN_AS_PUBLISHED for s in matching)
    properties = wire.without(
        publication.properties, wire.Property.TOPIC_ALIAS, wire.Property.SUBSCRIPTION_ID
    )
    if session.version == V5:
        names = [s.identifier for s in matching if s.identifier]
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

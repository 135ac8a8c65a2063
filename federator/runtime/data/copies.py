"""Finds the second of two copies of a publication, so that only one passes.

While two overlapping subscriptions stand, the broker sends a copy for each, one right after the
other: in its queue for QoS 0, or in that for QoS 1 and 2. The two arrive whole and in a known
order, and only one carries the identifier. So a copy is a second one when it directly follows its
first one; a copy whose other half was never sent (one subscription was not up yet, or no longer),
or was dropped by a full queue, passes. Two publications with one content stay two.

What a session queued while no client was connected may hold copies for subscriptions of another
process, of unknown filters. There, a copy is a second one when it directly follows its first one
and only one of both has an identifier.

Brokers that send one copy for all matching subscriptions never send a second one. There, and when a
full queue drops one copy of two, a publication equal to the one right before it may be mistaken for
its copy.

Used during transitions only: see ``protocol.data.cover_transition``.
"""

from mqtt5 import PublishPacket

from federator.protocol.data.cover_transition import sent_first
from federator.protocol.filters import FilterTrie
from federator.protocol.forwarding.publications import remade

TOPICS_MAX = 4_096  # with a remembered order of copies


class Copies:
    """Finds second copies."""

    def __init__(self) -> None:
        self.expect(FilterTrie(), FilterTrie(), 0)

    def expect(self, retiring: FilterTrie, arriving: FilterTrie, identifier: int) -> None:
        """Expect copies for ``retiring`` and, with ``identifier``, for ``arriving``.

        Neither set overlaps in itself, or changes.
        """
        self._retiring, self._arriving = retiring, arriving
        self._identifier = identifier
        self._any = False
        self._leads: dict[str, bool | None] = {}
        # The latest of QoS 0 and of QoS 1 and 2, if it may be the first of two.
        self._first: list[PublishPacket | None] = [None, None]

    def expect_any(self) -> None:
        """Expect copies for unknown filters."""
        self.expect(FilterTrie(), FilterTrie(), 0)
        self._any = True

    def separate(self) -> None:
        """Note that later publications are no copies of earlier ones."""
        self._first = [None, None]

    def is_second(self, packet: PublishPacket) -> bool:
        """Whether ``packet`` is a second copy. Call it for each publication, in order."""
        queue = 0 if packet.packet_id is None else 1
        first, self._first[queue] = self._first[queue], None
        if self._any:
            identified = bool(packet.subscription_ids)
            if first and bool(first.subscription_ids) is not identified and _same(first, packet):
                return True
            self._first[queue] = packet
            return False
        identified_leads = self._identified_leads(packet.topic)
        if identified_leads is None:
            return False
        identified = self._identifier in packet.subscription_ids
        if identified is identified_leads:
            self._first[queue] = packet
            return False
        return first is not None and _same(first, packet)

    def _identified_leads(self, topic: str) -> bool | None:
        """Whether the copy with the identifier is the first one; ``None``: there is only one."""
        if topic in self._leads:
            return self._leads[topic]
        if len(self._leads) >= TOPICS_MAX:
            self._leads.clear()
        old, new = self._retiring.match(topic), self._arriving.match(topic)
        leads = self._leads[topic] = sent_first(new[0], old[0]) if old and new else None
        return leads


def without_identifiers(packet: PublishPacket) -> bytes:
    """The bytes of ``packet`` without Subscription Identifiers, which brokers refuse."""
    return remade(packet).write()


def _same(a: PublishPacket, b: PublishPacket) -> bool:
    """Compare all that copies share; their expiry was counted down at different moments."""
    return (
        a.topic == b.topic
        and a.payload == b.payload
        and a.qos == b.qos
        and a.retain == b.retain
        and a.payload_format_indicator == b.payload_format_indicator
        and a.content_type == b.content_type
        and a.response_topic == b.response_topic
        and a.correlation_data == b.correlation_data
        and a.user_properties == b.user_properties
    )

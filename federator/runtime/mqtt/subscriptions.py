"""The filters we want, those the broker granted, and the packets between the two.

Changes queue per filter, the last one wins, and they leave in packets of bounded size with a
bounded number unanswered: Mosquitto drops even acknowledgements once 1,000 packets wait on one
socket. It also logs each filter, and our connection that reads the log has 20 lines in flight: a
client that changes filters faster makes its own agent lose lines (1,020 at once did).

**A session may go back in time.** Mosquitto writes sessions to disk when it stops in order, and
every half hour: after a kill it restores those, and reports them as present. So each connection
subscribes again everything wanted, which costs a packet for 20 filters, and unsubscribes what the
session once had and should no longer have: overlapping subscriptions bring two copies.

Pure: packets are appended to ``out``.

Source: OASIS MQTT 5.0, sections 3.8 to 3.11.
"""

from collections.abc import Iterable

import mqtt5
import msgspec
from mqtt5 import QoS, TopicFilter

from federator.protocol.bounded_cache import Recent
from federator.runtime.mqtt.window import PacketIds
from federator.runtime.mqtt.wire import Out

SUBSCRIBE_FILTERS_MAX = 20
SUBSCRIBE_BYTES_MAX = 65_536
UNANSWERED_MAX = 2
"""The UNSUBSCRIBE and the SUBSCRIBE after a resumed session go together."""
FORMER_MAX = 4_096
"""How many former patterns of the session are remembered; the oldest are forgotten."""

_HEADER_BYTES = 16  # fixed header, packet identifier, properties: at most 13
_ERROR = 0x80


def live_filter(
    pattern: str,
    max_qos: QoS = QoS.AT_LEAST_ONCE,
    *,
    no_local: bool = False,
    as_published: bool = False,
) -> TopicFilter:
    """A subscription to ``pattern`` that gets no messages retained before."""
    return TopicFilter(
        pattern,
        max_qos=max_qos,
        no_local=no_local,
        retain_as_published=as_published,
        retain_handling=mqtt5.RetainHandling.SEND_NEVER,
    )


class _Asked(msgspec.Struct, frozen=True, gc=False):
    """What a SUBSCRIBE asks for one filter: options, and the identifier that its copies carry.

    Exempt from Python's garbage collector: there are very many, and none is part of a cycle.
    """

    filter: TopicFilter
    identifier: int | None


class Subscriptions:
    """The wanted and the granted filters of one session, and the changes not answered yet."""

    def __init__(self, ids: PacketIds) -> None:
        self._ids = ids
        self._wanted: dict[str, _Asked] = {}
        self._granted: dict[str, _Asked] = {}
        self._former: Recent[str, None] = Recent(FORMER_MAX)  # no longer wanted
        self._changes: dict[str, _Asked | None] = {}  # not sent yet; None unsubscribes
        self._unanswered: dict[int, list[_Asked] | list[str]] = {}
        self._connected = False
        self.refused: dict[str, int] = {}  # wanted filters the broker refused, with its reason

    @property
    def settled(self) -> bool:
        """Whether every change was sent and answered."""
        return not self._changes and not self._unanswered

    @property
    def wanted(self) -> list[str]:
        return list(self._wanted)

    def answered(self, patterns: Iterable[str]) -> bool:
        """Whether every change to ``patterns`` was sent and answered."""
        open_ = set(self._changes)
        for asked in self._unanswered.values():
            open_.update(item if isinstance(item, str) else item.filter.pattern for item in asked)
        return open_.isdisjoint(patterns)

    def subscribe(
        self, filters: Iterable[TopicFilter], out: Out, *, identifier: int | None = None
    ) -> None:
        """Subscribe ``filters``; one already wanted in the same way changes nothing."""
        for filter in filters:
            request = _Asked(filter, identifier)
            if self._wanted.get(filter.pattern) == request:
                continue
            self._wanted[filter.pattern] = request
            self._former.pop(filter.pattern, None)
            self._change(filter.pattern, request)
        self._send(out)

    def unsubscribe(self, patterns: Iterable[str], out: Out) -> None:
        for pattern in patterns:
            if self._wanted.pop(pattern, None) is not None:
                self.refused.pop(pattern, None)
                self._former.put(pattern, None)
                self._change(pattern, None)
        self._send(out)

    def again(self, out: Out) -> None:
        """Repeat the SUBSCRIBEs of granted filters: the broker logs them as if they were new.

        Retained messages do not come again: the subscriptions exist.
        """
        for pattern, asked in self._granted.items():
            if pattern in self._wanted and pattern not in self._changes:
                quiet = live_filter(
                    pattern,
                    asked.filter.max_qos,
                    no_local=asked.filter.no_local,
                    as_published=asked.filter.retain_as_published,
                )
                self._changes[pattern] = _Asked(quiet, asked.identifier)
        self._send(out)

    def recall(self, patterns: Iterable[str]) -> None:
        """Note that an earlier process subscribed ``patterns``: the session may still have them."""
        for pattern in patterns:
            self._former.put(pattern, None)

    def resume(self, *, session_present: bool, out: Out, identifiers: bool = True) -> None:
        """On a new connection, subscribe everything wanted and unsubscribe the rest.

        ``identifiers``: the broker supports Subscription Identifiers.
        """
        self._connected = True
        for pattern, request in self._wanted.items():
            if request.identifier is not None and not identifiers:
                self._wanted[pattern] = msgspec.structs.replace(request, identifier=None)
        if not session_present:
            self._former.clear()
            self._granted.clear()
        stale = [*self._former, *self._granted]
        self._granted.clear()
        self._changes = {pattern: None for pattern in stale if pattern not in self._wanted}
        self._changes.update(self._wanted)
        self._send(out)

    def suspend(self) -> None:
        """The connection is lost: count unanswered filters as not granted."""
        self._connected = False
        self._changes.clear()
        for packet_id in self._unanswered:
            self._ids.release(packet_id)
        self._unanswered.clear()

    def on_suback(self, ack: mqtt5.SubAckPacket, out: Out) -> dict[str, int]:
        """Note the granted and the refused filters; return those refused for the first time."""
        asked = self._answered(ack.packet_id)
        newly_refused: dict[str, int] = {}
        for index, reason_code in enumerate(ack.reason_codes[: len(asked)]):
            request = asked[index]
            if isinstance(request, str):
                break
            pattern, reason = request.filter.pattern, int(reason_code)
            if reason < _ERROR:
                self._granted[pattern] = request
                self.refused.pop(pattern, None)
            elif pattern in self._wanted:
                if pattern not in self.refused:
                    newly_refused[pattern] = reason
                self.refused[pattern] = reason
        self._send(out)
        return newly_refused

    def on_unsuback(self, ack: mqtt5.UnsubAckPacket, out: Out) -> None:
        """Note the unsubscribed filters."""
        for pattern in self._answered(ack.packet_id):
            if isinstance(pattern, str):
                self._granted.pop(pattern, None)
        self._send(out)

    def _answered(self, packet_id: int) -> list[_Asked] | list[str]:
        asked = self._unanswered.pop(packet_id, None)
        if asked is None:
            return []
        self._ids.release(packet_id)
        return asked

    def _change(self, pattern: str, wanted: _Asked | None) -> None:
        if self._connected:
            self._changes.pop(pattern, None)  # changes leave in the order of the last change
            self._changes[pattern] = wanted

    def _send(self, out: Out) -> None:
        while self._connected and self._changes and len(self._unanswered) < UNANSWERED_MAX:
            asked, dropped = self._next_batch()
            packet_id = self._ids.take()
            if asked:
                self._unanswered[packet_id] = asked
                filters, identifier = [request.filter for request in asked], asked[0].identifier
                packet = mqtt5.SubscribePacket(packet_id, filters, subscription_id=identifier)
                out.append(packet.write())
            else:
                self._unanswered[packet_id] = dropped
                out.append(mqtt5.UnsubscribePacket(packet_id, dropped).write())
            if not self._changes:
                self._changes = {}  # a fresh dictionary: a drained one keeps its memory

    def _next_batch(self) -> tuple[list[_Asked], list[str]]:
        """Take changes for one packet: filters of one identifier, or patterns to unsubscribe."""
        asked: list[_Asked] = []
        dropped: list[str] = []
        room = SUBSCRIBE_BYTES_MAX - _HEADER_BYTES
        for pattern, change_to in self._changes.items():
            size = len(pattern.encode()) + 3
            first = not asked and not dropped
            if not first and (size > room or len(asked) + len(dropped) == SUBSCRIBE_FILTERS_MAX):
                break
            if change_to is None:
                if asked:
                    break
                dropped.append(pattern)
            elif dropped or (asked and asked[0].identifier != change_to.identifier):
                break
            else:
                asked.append(change_to)
            room -= size
        for change in dropped or [request.filter.pattern for request in asked]:
            del self._changes[change]
        return asked, dropped

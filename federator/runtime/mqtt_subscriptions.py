"""The subscriptions we want, those the broker granted, and the packets between the two.

Changes queue per filter, the last one wins, and leave in packets of bounded size with a bounded
number of them unanswered: Mosquitto drops even acknowledgements once 1,000 packets wait on one
socket.

Pure: packets are appended to ``out``.

Source: OASIS MQTT 5.0, sections 3.8 to 3.11; mosquitto.md, "Queues and limits".
"""

from collections.abc import Iterable

from mqtt5 import SubAckPacket, SubscribePacket, TopicFilter, UnsubAckPacket, UnsubscribePacket

from federator.runtime.mqtt_window import PacketIds
from federator.runtime.mqtt_wire import Out

SUBSCRIBE_FILTERS_MAX = 1_000
SUBSCRIBE_BYTES_MAX = 65_536
UNANSWERED_MAX = 16

_HEADER_BYTES = 16  # fixed header, identifier, property length: at most 8
_ERROR = 0x80


class Subscriptions:
    """Wanted and granted filters of one session."""

    def __init__(self, ids: PacketIds) -> None:
        self._ids = ids
        self._wanted: dict[str, TopicFilter] = {}
        self._granted: dict[str, TopicFilter] = {}
        self._changes: dict[str, TopicFilter | None] = {}  # not sent yet; None unsubscribes
        self._unanswered: dict[int, list[TopicFilter] | list[str]] = {}
        self._connected = False
        self.refused: dict[str, int] = {}  # wanted filters the broker refused, with its reason

    @property
    def settled(self) -> bool:
        """Every change was sent and answered."""
        return not self._changes and not self._unanswered

    def subscribe(self, filters: Iterable[TopicFilter], out: Out) -> None:
        """Want ``filters``; one already wanted with the same options changes nothing."""
        for wanted in filters:
            if self._wanted.get(wanted.pattern) == wanted:
                continue
            self._wanted[wanted.pattern] = wanted
            self._change(wanted.pattern, wanted)
        self._send(out)

    def unsubscribe(self, patterns: Iterable[str], out: Out) -> None:
        """Want ``patterns`` no longer."""
        for pattern in patterns:
            if self._wanted.pop(pattern, None) is not None:
                self.refused.pop(pattern, None)
                self._change(pattern, None)
        self._send(out)

    def resume(self, *, session_present: bool, out: Out) -> None:
        """A connection is up: ask for what the broker's session lacks."""
        self._connected = True
        if not session_present:
            self._granted.clear()
        self._changes = {pattern: None for pattern in self._granted if pattern not in self._wanted}
        for pattern, wanted in self._wanted.items():
            if self._granted.get(pattern) != wanted:
                self._changes[pattern] = wanted
        self._send(out)

    def suspend(self) -> None:
        """The connection is gone; what was unanswered counts as not granted."""
        self._connected = False
        self._changes.clear()
        for packet_id in self._unanswered:
            self._ids.release(packet_id)
        self._unanswered.clear()

    def on_suback(self, ack: SubAckPacket, out: Out) -> dict[str, int]:
        """Note what was granted; return the filters refused for the first time and the reasons."""
        asked = self._answered(ack.packet_id)
        newly_refused: dict[str, int] = {}
        for wanted, reason_code in zip(asked, ack.reason_codes, strict=False):
            if not isinstance(wanted, TopicFilter):
                break
            reason = int(reason_code)
            if reason < _ERROR:
                self._granted[wanted.pattern] = wanted
                self.refused.pop(wanted.pattern, None)
            elif wanted.pattern in self._wanted:
                if wanted.pattern not in self.refused:
                    newly_refused[wanted.pattern] = reason
                self.refused[wanted.pattern] = reason
        self._send(out)
        return newly_refused

    def on_unsuback(self, ack: UnsubAckPacket, out: Out) -> None:
        """Note what the broker forgot."""
        for pattern in self._answered(ack.packet_id):
            if isinstance(pattern, str):
                self._granted.pop(pattern, None)
        self._send(out)

    def _answered(self, packet_id: int) -> list[TopicFilter] | list[str]:
        asked = self._unanswered.pop(packet_id, None)
        if asked is None:
            return []
        self._ids.release(packet_id)
        return asked

    def _change(self, pattern: str, wanted: TopicFilter | None) -> None:
        if self._connected:
            self._changes[pattern] = wanted

    def _send(self, out: Out) -> None:
        while self._connected and self._changes and len(self._unanswered) < UNANSWERED_MAX:
            batch = self._next_batch()
            packet_id = self._ids.take()
            if isinstance(batch[0], TopicFilter):
                filters = [change for change in batch if isinstance(change, TopicFilter)]
                self._unanswered[packet_id] = filters
                out.append(SubscribePacket(packet_id, filters).write())
            else:
                patterns = [change for change in batch if isinstance(change, str)]
                self._unanswered[packet_id] = patterns
                out.append(UnsubscribePacket(packet_id, patterns).write())

    def _next_batch(self) -> list[TopicFilter | str]:
        """Take changes of one kind that fit one packet: filters, or patterns to drop."""
        batch: list[TopicFilter | str] = []
        room = SUBSCRIBE_BYTES_MAX - _HEADER_BYTES
        subscribing: bool | None = None
        for pattern, wanted in self._changes.items():
            size = len(pattern.encode()) + 3
            if subscribing is None:
                subscribing = wanted is not None
            elif subscribing != (wanted is not None) or size > room:
                break
            if len(batch) == SUBSCRIBE_FILTERS_MAX:
                break
            batch.append(pattern if wanted is None else wanted)
            room -= size
        for change in batch:
            del self._changes[change if isinstance(change, str) else change.pattern]
        return batch

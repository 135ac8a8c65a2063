"""The spool over MQTT: batches pushed as they are written, and sent again on request.

A push is best effort: it is skipped while our broker is away or slow. ``head`` lists what there is,
and a reader asks for missing parts. Answers go a page at a time, in turn, so that a reader of the
whole spool delays no other. Any client may publish on our broker, so the queue of asks is bounded,
and a waiting ask costs nothing until its turn. From the first ask on that a collector signed, the
unsigned ones have no place there.

Source: docs/metrics.md, "Live" and "Replay"; docs/security.md, "Roles".
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from mqtt5 import PublishPacket, QoS, TopicFilter
from msgspec.structs import replace

from federator.errors import DecodeError
from federator.protocol.messages import topics
from federator.protocol.rate_limiter import WindowCounter
from federator.protocol.telemetry.records import encode
from federator.protocol.telemetry.replay import (
    HEADER_BYTES_MAX,
    Again,
    Ask,
    Head,
    decode_ask,
    digest_of,
)
from federator.protocol.trust.words import is_signed
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.mqtt.wire import packet_id_at
from federator.runtime.process.clocks import monotonic_ms
from federator.runtime.process.notices import Complaints
from federator.runtime.telemetry.spool import Batch, Part
from federator.runtime.trust.words import SignedWords

UNACKNOWLEDGED_MAX: Final = 256
"""Messages that our broker has not acknowledged; with more, nothing is pushed."""


def publish(link: MqttLink, topic: str, payload: bytes, *, retain: bool = False) -> bool:
    """Publish at QoS 1 behind whatever waits; ``False`` when it was not accepted."""
    if not link.connected or link.unacknowledged >= UNACKNOWLEDGED_MAX:
        return False
    packet = PublishPacket(topic, payload, qos=QoS.AT_LEAST_ONCE, retain=retain, packet_id=1)
    written = bytearray(packet.write())
    return link.publish_packet(written, packet_id_at(written), 1)


ASKS_MAX: Final = 16
WINDOW_MS: Final = 50
JUDGED_MAX: Final = 64
"""Proofs, 0.13 ms each, in one window. A collector asks again if its ask is ignored."""
MESSAGE_BYTES_MAX: Final = 262_144
LINES_BYTES_MAX: Final = MESSAGE_BYTES_MAX - HEADER_BYTES_MAX - 1
PAUSE_S: Final = 0.05
"""Between two messages: 5 MB/s at most."""
WAITING_MAX: Final = 4
"""Messages that our broker has not acknowledged; with more, we wait."""
_PROOFS: Final = "proofs"

Read = Callable[[str, int, int, int], Awaitable[tuple[Part | None, tuple[int, int]]]]
"""A read of (spool, first, last, bytes at most) gives a part, and the first and last batch held."""

_log = structlog.get_logger()


@dataclass(kw_only=True, eq=False, repr=False)
class ReplayService:
    """Pushes new batches to our broker's clients, and sends older ones on request."""

    link: MqttLink
    federation: str
    broker: BrokerId
    tables: bool  # push the batches, not only the head
    read: Read
    words: SignedWords  # signs heads and answers, and verifies asks

    def __post_init__(self) -> None:
        self.malformed = 0  # asks that do not decode
        self.refused = 0  # asks beyond the bound of the queue or of verifications
        self.answered = 0  # messages sent
        self.topic = topics.metrics_ask_topic(self.federation)
        self._orders: deque[Ask] = deque()
        self._proven = False  # whether the waiting asks are proven to come from collectors
        self._signatures_checked: WindowCounter[str] = WindowCounter(window_ms=WINDOW_MS)
        self._request_came = asyncio.Event()
        self._complain = Complaints().complain

    def push(
        self, batches: Sequence[Batch], spool: str, held: tuple[int, int], now_us: int
    ) -> None:
        """Push ``batches``, and publish what ``spool`` holds."""
        for batch in batches if self.tables else ():
            for table, lines in batch.items():
                topic = topics.metrics_table_topic(self.federation, table)
                publish(self.link, topic, b"".join(lines))
        first, last = held
        head = Head(broker=self.broker, spool=spool, first=first, last=last, at_us=now_us)
        topic = topics.metrics_head_topic(self.federation)
        publish(self.link, topic, self.words.sign(topic, encode(head)), retain=True)

    def subscription(self) -> TopicFilter:
        """What the control connection subscribes. Without retained asks: they have no sender."""
        return live_filter(self.topic, no_local=True)

    def on_ask(self, packet: PublishPacket) -> None:
        """Queue an authentic ask; count malformed ones, and log that once a minute."""
        try:
            ask = decode_ask(packet.payload)
        except DecodeError as error:
            self.malformed += 1
            self._complain("metrics.ask_malformed", reason=str(error), so_far=self.malformed)
            return
        signed = self.words.judges and is_signed(packet.payload)
        if not self._has_room(signed=signed):
            self.refused += 1
            return
        if not self.words.is_collectors(self.broker, packet, ask.to):
            return
        if signed and not self._proven:
            self._proven = True
            self._orders.clear()  # unproven ones are no longer accepted
        self._orders.append(ask)
        self._request_came.set()

    def _has_room(self, *, signed: bool) -> bool:
        """Whether an ask can have a place, and be verified now if it is signed."""
        if len(self._orders) >= ASKS_MAX and (self._proven or not signed):
            return False
        checked = self._signatures_checked.so_far(monotonic_ms())
        checked[_PROOFS] += signed
        return not signed or checked[_PROOFS] <= JUDGED_MAX

    async def run(self) -> None:
        while True:
            await self._request_came.wait()
            self._request_came.clear()
            while self._orders:
                await self._serve(self._orders.popleft())
                await asyncio.sleep(PAUSE_S)

    async def _serve(self, order: Ask) -> None:
        """Send one message of an answer."""
        link = self.link
        if not link.connected:
            return  # the reader asks again
        if link.unacknowledged > WAITING_MAX:
            self._orders.append(order)
            return
        try:
            part, held = await self.read(order.spool, order.first, order.last, LINES_BYTES_MAX)
        except OSError as error:
            _log.warning("metrics.spool_unreadable", reason=error.strerror or str(error))
            return
        covered = max(min(order.last, held[1]) if part is None else part.last, order.first - 1)
        lines = b"" if part is None else part.lines
        header = Again(
            spool=order.spool,
            batch_first=order.first,
            batch_last=covered,
            held_first=held[0],
            held_last=held[1],
            digest=digest_of(lines),
        )
        topic = topics.metrics_again_topic(self.federation, order.to)
        first = self.words.sign(topic, encode(header))
        if not publish(link, topic, first + b"\n" + lines):
            return
        self.answered += 1
        if part is not None and covered < min(order.last, held[1]):
            self._orders.append(replace(order, first=covered + 1))

"""Custody at a broker with subscribers: each frame once, in order, across our own death.

Before a frame is published, the journal on disk says that it will be; behind it, in the same queue,
our broker gets a retained marker that says it was. When we come back, the marker tells how far the
broker got, whatever we had time to write down.

Source: docs/protocol.md section 11.
"""

import time
from collections.abc import Callable
from typing import Protocol

import structlog
from mqtt5 import PublishPacket, QoS

from federator.protocol.custody import Chained, Delivery, Receiver
from federator.protocol.frames import KEY_BYTES, Frame, chain_numbers
from federator.protocol.types import Millis
from federator.runtime.delivery_journal import DeliveryJournal
from federator.runtime.mqtt_wire import packet_id_at

COMPLAINT_GAP_S = 60.0
FORMER_S = 60.0
"""How long after our start a filter of our clients counts as one of those before."""

MARKER_WAIT_MS = 1_000
"""How long after our broker is up frames are refused, unless the marker comes; it may be lost."""

_log = structlog.get_logger()


class MarkedBroker(Protocol):
    """What marking needs of the connection to our broker."""

    def publish_packet(self, packet: bytearray, packet_id_at: int, qos: int) -> bool:
        """Publish a ready-made QoS 1 packet."""

    @property
    def unacknowledged(self) -> int:
        """Messages that the broker has not acknowledged yet."""


class DestinationCustody:
    """The chains that our clients want.

    Args:
        receiver: What arrived and what is missing.
        journal: What was delivered.
        marker_topic: Where our broker keeps the marker.
        publish: Publishes a frame on our broker.
        broker: The connection to our broker.
        wall_clock_us: Microseconds since 1970.

    Attributes:
        marker_topic: As given.
        started: We know how far an earlier life of ours got. Until then every frame is refused.
        failures: Times that the journal could not be written.
    """

    def __init__(
        self,
        *,
        receiver: Receiver[Frame],
        journal: DeliveryJournal,
        marker_topic: str,
        publish: Callable[[Frame], None],
        broker: Callable[[], MarkedBroker | None],
        wall_clock_us: Callable[[], int],
    ) -> None:
        self.receiver = receiver
        self.marker_topic = marker_topic
        self.started = False
        self.failures = 0
        self._journal = journal
        self._publish = publish
        self._broker = broker
        self._wall_clock_us = wall_clock_us
        self._former_since_us = dict(journal.load().since_us)
        self._former_until_s = time.monotonic() + FORMER_S
        self._marker: int | None = None
        self._up_ms: Millis | None = None
        self._marked = 0  # the last entry whose marker our broker is known to have
        self._wants = self._saved_wants = 0  # changes of what our clients want
        self._due: list[Delivery[Frame]] = []
        self._complained_at_s = -COMPLAINT_GAP_S

    def want(self, key: bytes) -> None:
        """Our clients subscribe to the filter with ``key``."""
        now_us = self._wall_clock_us()
        since_us = self._former_since_us.pop(key, now_us)
        if time.monotonic() > self._former_until_s:
            self._former_since_us.clear()
            since_us = now_us
        self.receiver.want(key, since_us=since_us)
        self._wants += 1

    def unwant(self, key: bytes) -> None:
        """They no longer do."""
        self.receiver.unwant(key)
        self._wants += 1

    def on_local_up(self, now_ms: Millis) -> None:
        """Our broker is up. It may have lost the marker, and none means: all was delivered."""
        self._up_ms = now_ms
        if self.started:
            self._mark()

    def on_marker(self, payload: bytes) -> None:
        """Our broker tells how far we got in an earlier life."""
        if not self.started:
            self._marker = self._journal.read_marker(payload)

    def arrive(self, frame: Frame, local: tuple[int, ...], now_ms: Millis, *, room: bool) -> None:
        """Take a frame that our clients want by its filters at the positions ``local``."""
        if not self._start(now_ms):
            return
        self._due += self.receiver.arrive(
            frame.origin,
            frame.epoch,
            frame.seq,
            _links(frame, local),
            frame,
            size=len(frame.body),
            made_us=frame.origin_time_us,
            now_us=self._wall_clock_us(),
            now_ms=now_ms,
            room=room,
        )

    def on_tail(self, frame: Frame, local: tuple[int, ...], now_ms: Millis) -> None:
        """The origin repeats the heads of chains, some of which our clients want."""
        if self._start(now_ms) and len(frame.body) == 8:
            self.receiver.tail(
                frame.origin,
                int.from_bytes(frame.body, "big"),
                _links(frame, local),
                made_us=frame.origin_time_us,
                now_us=self._wall_clock_us(),
                now_ms=now_ms,
            )

    def on_void(self, frame: Frame, now_ms: Millis) -> None:
        """The origin has nothing for us on a chain up to the number of ``frame``."""
        if not self._start(now_ms):
            return
        voids = self.receiver.voids
        self._due += self.receiver.skip(
            frame.origin, frame.epoch, frame.keys[:KEY_BYTES], frame.seq, now_ms=now_ms
        )
        if self.receiver.voids > voids:
            _log.warning("custody.gone", origin=frame.origin, so_far=self.receiver.voids)

    def flush(self) -> None:
        """Publish everything whose turn came, between the journal and the marker."""
        due, self._due = self._due, []
        if not due:
            return
        try:
            self._journal.append([(d.origin, d.epoch, d.seq, d.keys) for d in due])
        except OSError as error:
            self.failures += 1
            self._complain(error)
        for delivery in due:
            if delivery.frame.publications:
                self._publish(delivery.frame)
        self._mark()

    def save(self, *, leaving: bool = False) -> None:
        """Bound the journal, and write down since when our clients want what.

        Args:
            leaving: Write it down in any case.
        """
        broker = self._broker()
        if self.started and broker is not None and not broker.unacknowledged:
            self._marked = self._journal.last
        wants_changed = self._saved_wants != self._wants
        if not (leaving or wants_changed or self._journal.is_due):
            return
        positions = self.receiver.positions() if self.started else None
        since_us = {**self._former_since_us, **self.receiver.since_us}
        try:
            self._journal.snapshot(positions, since_us, folded_to=self._marked)
        except OSError as error:
            self.failures += 1
            self._complain(error)
        else:
            self._saved_wants = self._wants

    def _start(self, now_ms: Millis) -> bool:
        """Begin with the first frame after the marker has come, or had time to; whether we did."""
        if self.started:
            return True
        waited = self._up_ms is not None and now_ms >= self._up_ms + MARKER_WAIT_MS
        if self._marker is None and self._journal.last and not waited:
            return False
        try:
            positions = self._journal.resume(self._marker)
        except OSError as error:
            self.failures += 1
            self._complain(error)
            return False
        self.started = True
        self.receiver.restore(positions, {}, now_ms=now_ms)
        self._mark()
        return True

    def _mark(self) -> None:
        """Have our broker keep how far we got, behind all that we published."""
        broker = self._broker()
        if broker is None:
            return
        packet = bytearray(
            PublishPacket(
                self.marker_topic,
                self._journal.marker(),
                qos=QoS.AT_LEAST_ONCE,
                retain=True,
                packet_id=1,
            ).write()
        )
        broker.publish_packet(packet, packet_id_at(packet), 1)

    def _complain(self, error: OSError) -> None:
        now_s = time.monotonic()
        if now_s - self._complained_at_s >= COMPLAINT_GAP_S:
            self._complained_at_s = now_s
            _log.error("custody.journal_failed", reason=error.strerror or str(error))


def _links(frame: Frame, local: tuple[int, ...]) -> tuple[Chained, ...]:
    """The places of ``frame`` on the chains that our clients want."""
    keys, numbers = frame.keys, chain_numbers(frame)
    return tuple(
        Chained(keys[index * KEY_BYTES : (index + 1) * KEY_BYTES], numbers[index])
        for index in local
    )

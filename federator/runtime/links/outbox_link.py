"""The connection over which frames go into an outbox, no faster than the receiver takes them out.

It leads to our own broker, which accepts everything at once; so frames beyond the receiver's credit
wait here, within the bound of a slow connection. Urgent packets take turns with the others, as they
do there.

Source: docs/protocol.md 19.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from mqtt5 import PublishPacket

from federator.protocol.links.outbox import Credit
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.mqtt.link import LinkObserver, MqttLink
from federator.runtime.mqtt.transport import PacketTransport, SendQueue


class OutboxLink(MqttLink):
    """A client of our own broker that publishes for an agent that fetches from it.

    Args:
        window_bytes: The credit.
        options: As for ``MqttLink``; ``send_queue_bytes_max`` is also the bound of what waits for
            credit.

    Attributes:
        mark: Called when a mark should ask the receiver for its position.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        observer: LinkObserver,
        *,
        window_bytes: int,
        **options: Any,  # noqa: ANN401 - as the class above has them
    ) -> None:
        super().__init__(endpoint, observer, **options)
        self._window_bytes = window_bytes
        self.credit = Credit(window_bytes=window_bytes)
        self.mark: Callable[[], None] = lambda: None
        self._urgent = SendQueue(self._queue_bytes_max)
        self._data = SendQueue(self._queue_bytes_max)
        self._turns = (self._urgent, self._data)
        self._trials: deque[Callable[[], None] | None] = deque()  # of each packet in ``_data``
        self._emptied = 0

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait, for credit or to be sent."""
        return super().queued_bytes + self._urgent.bytes + self._data.bytes

    @property
    def idle(self) -> bool:
        """Whether nothing waits, not even for credit."""
        return super().idle and not self._holds

    @property
    def urgent_bytes(self) -> int:
        """Bytes of waiting urgent packets."""
        return super().urgent_bytes + self._urgent.bytes

    @property
    def bytes_arrived(self) -> int:
        """Bytes that the receiver has confirmed."""
        return super().bytes_arrived - self.credit.owed_bytes

    @property
    def stint(self) -> tuple[int, int]:
        """As for a plain connection, but of what waits for credit: our broker always keeps up."""
        return super().stint[0], self._emptied

    @property
    def _holds(self) -> bool:
        """Whether packets wait for credit."""
        return bool(self._urgent.bytes or self._data.bytes)

    def write_packets(
        self, parts: Sequence[bytes | memoryview], count: int, *, urgent: bool = False
    ) -> bool:
        """Send a run of ``count`` ready-made QoS 0 PUBLISH packets when there is credit."""
        return self._offer(b"".join(parts), count, urgent=urgent)

    def try_packet(self, packet: bytes, on_too_long: Callable[[], None]) -> bool:
        """Try a QoS 0 PUBLISH packet when there is credit."""
        return self._offer(packet, 1, urgent=False, trial=on_too_long)

    def _offer(
        self, run: bytes, count: int, *, urgent: bool, trial: Callable[[], None] | None = None
    ) -> bool:
        """Send packets, or keep them until there is credit; ``False`` when dropped."""
        if not self.connected or (self.credit.open and not self._holds):
            return self._write(run, count, urgent=urgent, trial=trial)
        queue = self._urgent if urgent else self._data
        if not queue.push(run, count, refusable=True):
            self._counters.publishes_dropped += count
            return False
        if not urgent:
            self._trials.append(trial)
        return True

    def write_mark(self, topic: str, payload: bytes) -> bool:
        """Publish a mark behind the frames published so far; ``False`` when dropped."""
        return super().write_packets((PublishPacket(topic, payload).write(),), 1)

    def on_taken(self, taken_bytes: int, taken_packets: int) -> None:
        """Note the receiver's position, and publish what the new credit allows."""
        self.credit.on_taken(taken_bytes, taken_packets)
        held = self._holds
        while self._holds and self.credit.open:
            first, second = self._turns
            urgent = (first if first.bytes else second) is self._urgent
            queue = self._urgent if urgent else self._data
            before = queue.publications
            packet = queue.pop(1)  # one piece, however long
            self._turns = (second, first)
            trial = None if urgent else self._trials.popleft()
            self._write(packet, before - queue.publications, urgent=urgent, trial=trial)
        if held and not self._holds:
            self._emptied += 1

    def discard(self) -> None:
        """Drop everything that waits: the receiver is gone."""
        self._counters.publishes_dropped += self._urgent.publications + self._data.publications
        self._urgent.clear()
        self._data.clear()
        self._trials.clear()

    def _write(
        self, packet: bytes, count: int, *, urgent: bool, trial: Callable[[], None] | None = None
    ) -> bool:
        if trial is not None:
            taken = super().try_packet(packet, trial)
        else:
            taken = super().write_packets((packet,), count, urgent=urgent)
        if not taken:
            return False
        if self.credit.on_sent(len(packet)):
            self.mark()
        return True

    def _on_lost(self, pipe: PacketTransport) -> bool:
        self.discard()
        self.credit = Credit(window_bytes=self._window_bytes)
        return super()._on_lost(pipe)

"""The stream as it happens: batches pushed to our own broker, and what the spool holds.

A push is a courtesy, not a promise: it is left out while our broker is away or slow. ``head`` says
what there is, and whoever misses a part asks for it.

Source: docs/metrics.md, "Live".
"""

from collections.abc import Sequence
from typing import Final

from mqtt5 import PublishPacket, QoS

from federator.protocol.metric_records import Head, encode, head_topic, table_topic
from federator.runtime.metrics_stream.spool import Batch
from federator.runtime.mqtt_link import MqttLink
from federator.runtime.mqtt_wire import packet_id_at

UNACKNOWLEDGED_MAX: Final = 256
"""Messages that our broker has not acknowledged; with more, nothing is pushed."""


def publish(link: MqttLink, topic: str, payload: bytes, *, retain: bool = False) -> bool:
    """Publish at QoS 1 behind whatever waits; whether it was taken."""
    if not link.connected or link.unacknowledged >= UNACKNOWLEDGED_MAX:
        return False
    packet = PublishPacket(topic, payload, qos=QoS.AT_LEAST_ONCE, retain=retain, packet_id=1)
    written = bytearray(packet.write())
    return link.publish_packet(written, packet_id_at(written), 1)


class LivePush:
    """Tells our broker's clients what was written.

    Args:
        link: The control connection to our own broker.
        federation: The federation's name.
        broker: Our id.
        tables: Push the batches, not the head alone.

    Attributes:
        skipped: Batches not pushed, or not whole.
    """

    def __init__(self, link: MqttLink, *, federation: str, broker: int, tables: bool) -> None:
        self.skipped = 0
        self._link = link
        self._federation = federation
        self._broker = broker
        self._tables = tables

    def push(
        self, batches: Sequence[Batch], spool: str, held: tuple[int, int], now_us: int
    ) -> None:
        """Push ``batches``, and say what ``spool`` holds."""
        for batch in batches if self._tables else ():
            told = [
                publish(self._link, table_topic(self._federation, table), b"".join(lines))
                for table, lines in batch.lines.items()
            ]
            self.skipped += not all(told)
        first, last = held
        head = Head(broker=self._broker, spool=spool, first=first, last=last, at_us=now_us)
        publish(self._link, head_topic(self._federation), encode(head), retain=True)

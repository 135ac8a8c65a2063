"""Answers to those who ask for batches again: a page at a time, in turn, unhurried.

Like a librarian who serves a queue one book each, so that whoever wants the whole shelf keeps
nobody waiting. Anybody may publish on our broker, so the queue is bounded, and what waits in it
costs nothing until its turn.

Source: docs/metrics.md, "Replay".
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog
from mqtt5 import QoS, RetainHandling, TopicFilter

from federator.errors import DecodeError
from federator.protocol.metric_records import Again, Ask, again_topic, ask_topic, decode_ask, encode
from federator.runtime.metrics_stream.live import publish
from federator.runtime.metrics_stream.spool import Part
from federator.runtime.mqtt_link import MqttLink

ASKS_MAX: Final = 16
MESSAGE_BYTES_MAX: Final = 262_144
HEADER_ROOM: Final = 512
PAUSE_S: Final = 0.05
"""Between two messages: 5 MB/s at most."""
WAITING_MAX: Final = 4
"""Messages that our broker has not acknowledged; with more, we wait."""
COMPLAINT_GAP_S: Final = 60.0

Read = Callable[[str, int, int, int], Awaitable[tuple[Part | None, tuple[int, int]]]]
"""Of (spool, first, last, bytes at most): a part, and the first and last batch held."""

_log = structlog.get_logger()


@dataclass(slots=True)
class _Order:
    """What is left of an ask."""

    spool: str
    next: int
    last: int
    to: str


class ReplayDesk:
    """Sends parts of the spool to those who ask.

    Args:
        link: The control connection to our own broker.
        federation: The federation's name.
        read: Reads the spool.

    Attributes:
        malformed: Asks that mean nothing.
        refused: Asks that found the queue full.
        answered: Messages sent.
    """

    def __init__(self, link: MqttLink, *, federation: str, read: Read) -> None:
        self.malformed = self.refused = self.answered = 0
        self.topic = ask_topic(federation)
        self._federation = federation
        self._link = link
        self._read = read
        self._orders: deque[_Order] = deque()
        self._asked = asyncio.Event()
        self._complained_at_s = -COMPLAINT_GAP_S

    def subscription(self) -> TopicFilter:
        """What the control connection subscribes. A retained ask is nobody's: none."""
        return TopicFilter(
            self.topic,
            max_qos=QoS.AT_LEAST_ONCE,
            no_local=True,
            retain_handling=RetainHandling.SEND_NEVER,
        )

    def on_ask(self, payload: bytes) -> None:
        """Somebody asks; a mistake is counted, and told once a minute."""
        try:
            ask = decode_ask(payload)
        except DecodeError as error:
            self.malformed += 1
            now_s = time.monotonic()
            if now_s - self._complained_at_s >= COMPLAINT_GAP_S:
                self._complained_at_s = now_s
                _log.warning("metrics.ask_malformed", reason=str(error), so_far=self.malformed)
            return
        if len(self._orders) >= ASKS_MAX:
            self.refused += 1
            return
        self._orders.append(_order(ask))
        self._asked.set()

    async def run(self) -> None:
        """Answer until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            while self._orders:
                await self._serve(self._orders.popleft())
                await asyncio.sleep(PAUSE_S)

    async def _serve(self, order: _Order) -> None:
        """Send one message of an answer."""
        link = self._link
        if not link.connected:
            return  # who still wants it asks again
        if link.unacknowledged > WAITING_MAX:
            self._orders.append(order)
            return
        room = MESSAGE_BYTES_MAX - HEADER_ROOM
        try:
            part, held = await self._read(order.spool, order.next, order.last, room)
        except OSError as error:
            _log.warning("metrics.spool_unreadable", reason=error.strerror or str(error))
            return
        covered = part.last if part is not None else min(order.last, held[1])
        covered = max(covered, order.next - 1)
        header = Again(
            spool=order.spool,
            batch_first=order.next,
            batch_last=covered,
            held_first=held[0],
            held_last=held[1],
        )
        lines = part.lines if part is not None else b""
        topic = again_topic(self._federation, order.to)
        if not publish(link, topic, encode(header) + b"\n" + lines):
            return
        self.answered += 1
        if part is not None and covered < min(order.last, held[1]):
            order.next = covered + 1
            self._orders.append(order)


def _order(ask: Ask) -> _Order:
    return _Order(ask.spool, ask.first, ask.last, ask.to)

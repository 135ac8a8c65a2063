"""The clients of a run: numbered publications at a steady rate, and every arrival into the ledger.

A payload says which run, topic and number it is; a message whose topic or stamp is another's is
*unexpected*. Publications that are due while no connection takes them are left out, not saved up:
a broker's return must not meet a flood of ours.
"""

import asyncio
import itertools
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import mqtt5

from federator.protocol.types import BrokerId
from lab.chaos.client import Client
from lab.chaos.layout import Layout, Subscriber
from lab.chaos.ledger import Ledger
from lab.grid.processes.broker import BrokerProcess

TICK_S: Final = 0.01
_STAMP: Final = struct.Struct(">QIQ")  # run, topic's place, number
PAYLOAD_BYTES_MIN: Final = _STAMP.size


@dataclass(frozen=True, slots=True)
class _Ears:
    """Puts what one client sees into the ledger."""

    _traffic: "Traffic"
    _name: str

    def on_message(self, packet: mqtt5.PublishPacket) -> None:
        traffic = self._traffic
        number = traffic.number_of(packet.topic, packet.payload or b"")
        traffic.ledger.arrived(
            self._name, packet.topic, number, redelivery=packet.duplicate, now_s=traffic.clock()
        )

    def on_subscribed(self) -> None:
        self._traffic.ledger.subscribed(self._name, self._traffic.clock())

    def on_acknowledged(self, topic: str, number: int) -> None:
        self._traffic.ledger.acknowledged(topic, number)

    def on_resent(self, topic: str, number: int) -> None:
        self._traffic.ledger.resent(topic, number)


class Traffic:
    """A layout's clients on running brokers.

    Args:
        run: Tells this run's messages from any other's.
        rate: Publications per second of all publishers together.
        clock: Seconds since the run began.
    """

    def __init__(
        self,
        layout: Layout,
        ledger: Ledger,
        brokers: dict[BrokerId, BrokerProcess],
        *,
        run: int,
        rate: float,
        qos: int,
        payload_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self.ledger = ledger
        self.clock = clock
        self._rate = rate
        self._run = run
        self._payload_bytes = max(payload_bytes, PAYLOAD_BYTES_MIN)
        self._topics = list(layout.topics)
        self._place_of = {topic: place for place, topic in enumerate(self._topics)}

        def client(name: str, here: BrokerId, subscriber: Subscriber | None = None) -> Client:
            place, wanted = brokers[here].place, None if subscriber is None else subscriber.filter
            return Client(place, _Ears(self, name), client_id=name, qos=qos, filter=wanted)

        at = {here: client(f"publisher-{here}", here) for here in layout.origins}
        self._publishers = {topic: at[here] for topic, here in layout.topics.items()}
        self.clients = [
            *at.values(),
            *(client(each.name, each.broker, each) for each in layout.subscribers),
        ]

    @property
    def unanswered(self) -> int:
        """Publications no broker has acknowledged."""
        return sum(client.unanswered for client in self.clients)

    def number_of(self, topic: str, payload: bytes) -> int:
        """The number of one of our publications on ``topic``; -1 for any other message."""
        if len(payload) != self._payload_bytes:
            return -1
        run, place, number = _STAMP.unpack_from(payload)
        if run != self._run or self._place_of.get(topic) != place:
            return -1
        return int(number)

    async def publish(self) -> None:
        """Publish on all topics in turn. Ends by cancellation."""
        turns = itertools.cycle(self._topics)
        began_s, done = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - began_s) * self._rate)
            for topic in itertools.islice(turns, due - done):
                self._publish_one(topic)
            done = due
            await asyncio.sleep(TICK_S)

    def _publish_one(self, topic: str) -> None:
        client = self._publishers[topic]
        if not client.ready:
            return
        number = self.ledger.attempted(topic, self.clock())
        stamp = _STAMP.pack(self._run, self._place_of[topic], number)
        client.publish(topic, stamp.ljust(self._payload_bytes, b"."), number)

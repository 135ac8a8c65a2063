"""The clients of a run: numbered publications at a steady rate, and every arrival into the ledger.

A payload says which run, topic and number it is; a message whose topic or stamp is another's is
*unexpected*. Publications that are due while no connection takes them are left out, not saved up:
a broker's return must not meet a flood of ours.

The clients speak MQTT 5 with persistent sessions, and know the fate of each publication. They are
written apart from the agent's own link, and as simply as the protocol allows: what checks must not
share the mistakes of what is checked. They publish only on an open connection with room in the
broker's Receive Maximum, so that "attempted" means written; what a broken connection left
unanswered they send again, and say so.

Source: OASIS MQTT 5.0, sections 3.1 to 3.14, 4.3 and 4.4.
"""

import asyncio
import contextlib
import itertools
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, cast

import mqtt5

from federator.protocol.types import BrokerId
from lab.chaos import burst
from lab.chaos.layout import Layout
from lab.chaos.ledger import Ledger
from lab.grid.processes.broker import BrokerProcess

SESSION_EXPIRY_S: Final = 3_600
KEEP_ALIVE_S: Final = 60
PING_S: Final = 15.0
"""A broker that is paused for less than ``SILENCE_S`` keeps its clients."""

SILENCE_S: Final = 40.0
CONNECT_TIMEOUT_S: Final = 5.0
RETRY_S: Final = 0.2
UNSENT_BYTES_MAX: Final = 1 << 20
"""QoS 0 to a broker that does not read: more is refused."""

RECEIVE_MAX: Final = 65_535


@dataclass(slots=True)
class _Pending:
    topic: str
    payload: bytes
    number: int
    qos: mqtt5.QoS
    released: bool = False  # QoS 2: PUBREC came


class Client(asyncio.Protocol):
    """One client id at one broker; ``run`` connects, and connects again for ever.

    ``qos`` is of its subscription to ``filter``, if it has one.
    """

    def __init__(
        self,
        place: tuple[str, int],
        traffic: "Traffic",
        *,
        client_id: str,
        qos: int = 0,
        filter: str | None = None,
    ) -> None:
        self.client_id = client_id
        self.place = place
        self._traffic = traffic
        self._qos = mqtt5.QoS(qos)
        self._filter = filter
        self._transport: asyncio.Transport | None = None
        self._up = False
        self._subscribed = False  # in the session
        self._closed = asyncio.Event()
        self._heard_s = 0.0
        self._unread = b""
        self._pending: dict[int, _Pending] = {}
        self._room = 0
        self._last_id = 0
        self._received: set[int] = set()  # QoS 2, not released

    @property
    def unanswered(self) -> int:
        return len(self._pending)

    def ready(self, qos: int) -> bool:
        """Whether ``publish`` would be taken.

        A broker hands QoS 2 on at its PUBREL, so QoS 1 behind it waits for that.
        """
        transport = self._transport
        if not self._up or transport is None or transport.is_closing():
            return False
        if qos == 0:
            return transport.get_write_buffer_size() < UNSENT_BYTES_MAX
        if qos == 1 and any(p.qos == 2 and not p.released for p in self._pending.values()):
            return False
        return len(self._pending) < self._room

    def publish(self, topic: str, payload: bytes, number: int, qos: int) -> None:
        assert self.ready(qos), "not ready"
        if qos == 0:
            self._write(mqtt5.PublishPacket(topic, payload))
            self._traffic.ledger.acknowledged(topic, number)
            return
        packet_id = self._free_id()
        pending = _Pending(topic, payload, number, mqtt5.QoS(qos))
        self._pending[packet_id] = pending
        self._write(mqtt5.PublishPacket(topic, payload, qos=pending.qos, packet_id=packet_id))

    def pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    @property
    def paused(self) -> bool:
        return self._transport is not None and not self._transport.is_reading()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._closed.clear()
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(CONNECT_TIMEOUT_S):
                        await loop.create_connection(lambda: self, *self.place)
                    await self._watch()
                self.disconnect()
                await asyncio.sleep(RETRY_S)
        finally:
            self.disconnect()

    def disconnect(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._transport = None
        self._up = False

    async def _watch(self) -> None:
        while True:
            try:
                async with asyncio.timeout(PING_S if self._up else CONNECT_TIMEOUT_S):
                    await self._closed.wait()
            except TimeoutError:
                if not self._up or time.monotonic() - self._heard_s > SILENCE_S:
                    return
                self._write(mqtt5.PingReqPacket())
            else:
                return

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._unread = b""
        self._heard_s = time.monotonic()
        connect = mqtt5.ConnectPacket(
            self.client_id,
            clean_start=False,
            keep_alive=KEEP_ALIVE_S,
            session_expiry_interval=SESSION_EXPIRY_S,
            receive_max=RECEIVE_MAX,
        )
        self._write(connect)

    def connection_lost(self, exc: Exception | None) -> None:
        self._up = False
        self._closed.set()

    def data_received(self, data: bytes) -> None:
        self._heard_s = time.monotonic()
        chunk = memoryview(self._unread + data)
        offset = 0
        try:
            while offset < len(chunk):
                packet, size = mqtt5.read(chunk[offset:])
                offset += size
                self._take(packet)
        except IndexError:
            pass  # the codec's word for an incomplete packet
        self._unread = bytes(chunk[offset:])

    # Packets

    def _take(self, packet: mqtt5.Packet) -> None:
        match packet:
            case mqtt5.PublishPacket():
                self._take_publication(packet)
            case mqtt5.PubAckPacket() | mqtt5.PubCompPacket():
                self._settle(packet.packet_id)
            case mqtt5.PubRecPacket():
                if (pending := self._pending.get(packet.packet_id)) is not None:
                    pending.released = True
                self._write(mqtt5.PubRelPacket(packet.packet_id))
            case mqtt5.PubRelPacket():
                self._received.discard(packet.packet_id)
                self._write(mqtt5.PubCompPacket(packet.packet_id))
            case mqtt5.SubAckPacket():
                assert int(packet.reason_codes[0]) < 0x80, f"{self.client_id}: not allowed"
                self._subscribed = True
                self._traffic.subscribed(self.client_id)
            case mqtt5.ConnAckPacket():
                self._greet(packet)
            case _:
                pass

    def _take_publication(self, packet: mqtt5.PublishPacket) -> None:
        packet_id = packet.packet_id
        if packet_id is not None and packet.qos == mqtt5.QoS.EXACTLY_ONCE:
            self._write(mqtt5.PubRecPacket(packet_id))
            if packet_id in self._received:
                return
            self._received.add(packet_id)
        elif packet_id is not None:
            self._write(mqtt5.PubAckPacket(packet_id))
        self._traffic.arrived(self.client_id, packet)

    def _greet(self, packet: mqtt5.ConnAckPacket) -> None:
        if int(packet.reason_code) >= 0x80:
            self.disconnect()
            self._closed.set()
            return
        self._up = True
        self._room = packet.receive_max
        if not packet.session_present:
            self._received.clear()
            self._subscribed = False
        if self._filter is not None:
            if self._subscribed:
                self._traffic.subscribed(self.client_id)
            else:
                wanted = mqtt5.TopicFilter(self._filter, max_qos=self._qos)
                self._write(mqtt5.SubscribePacket(self._free_id(), [wanted]))
        for packet_id, pending in self._pending.items():
            self._traffic.ledger.resent(pending.topic, pending.number)
            if pending.released and packet.session_present:
                self._write(mqtt5.PubRelPacket(packet_id))
                continue
            pending.released = False
            again = mqtt5.PublishPacket(
                pending.topic,
                pending.payload,
                qos=pending.qos,
                packet_id=packet_id,
                duplicate=packet.session_present,
            )
            self._write(again)

    def _settle(self, packet_id: int) -> None:
        pending = self._pending.pop(packet_id, None)
        if pending is not None:
            self._traffic.ledger.acknowledged(pending.topic, pending.number)

    def _free_id(self) -> int:
        while True:
            self._last_id = self._last_id % 65_535 + 1
            if self._last_id not in self._pending:
                return self._last_id

    def _write(self, packet: mqtt5.Packet) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(packet.write())


TICK_S: Final = 0.01
_STAMP: Final = struct.Struct(">QIQ")  # run, topic's place, number
PAYLOAD_BYTES_MIN: Final = _STAMP.size


class Traffic:
    """A layout's clients on running brokers.

    Args:
        run: Tells this run's messages from any other's.
        rate: Publications per second of all publishers together.
        qos: Of the publications on each topic, in turn.
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
        qos: Sequence[int],
        payload_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self.ledger = ledger
        self._clock = clock
        self._rate = rate
        self._qos = qos
        self._run = run
        self._payload_bytes = max(payload_bytes, PAYLOAD_BYTES_MIN)
        self._topics = list(layout.topics)
        self._held: set[str] = set()  # topics
        self._saved: list[str] = []  # a held topic for each publication that was due
        self._place_of = {topic: place for place, topic in enumerate(self._topics)}
        at = {
            here: Client(brokers[here].place, self, client_id=f"publisher-{here}")
            for here in layout.origins
        }
        self._publishers = {topic: at[here] for topic, here in layout.topics.items()}
        self.subscribers = {
            each.name: Client(
                brokers[each.broker].place,
                self,
                client_id=each.name,
                qos=each.qos,
                filter=each.filter,
            )
            for each in layout.subscribers
        }
        self.clients = [*at.values(), *self.subscribers.values()]

    @property
    def unanswered(self) -> int:
        return sum(client.unanswered for client in self.clients)

    def subscribed(self, name: str) -> None:
        self.ledger.subscribed(name, self._clock())

    def arrived(self, name: str, packet: mqtt5.PublishPacket) -> None:
        number, now_s = self.number_of(packet.topic, packet.payload or b""), self._clock()
        again = packet.duplicate
        self.ledger.arrived(name, packet.topic, number, redelivery=again, now_s=now_s)

    def number_of(self, topic: str, payload: bytes) -> int:
        """The number of one of our publications on ``topic``; -1 for any other message."""
        if len(payload) != self._payload_bytes:
            return -1
        run, place, number = _STAMP.unpack_from(payload)
        if run != self._run or self._place_of.get(topic) != place:
            return -1
        return int(number)

    async def publish(self) -> None:
        turns = itertools.cycle(self._topics)
        began_s, done = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - began_s) * self._rate)
            for topic in itertools.islice(turns, due - done):
                if topic in self._held:
                    self._saved.append(topic)
                else:
                    self._publish_one(topic)
            done = due
            await asyncio.sleep(TICK_S)

    def hold(self, topics: Iterable[str]) -> None:
        self._held.update(topics)

    @property
    def saved(self) -> int:
        return len(self._saved)

    async def hand_over(self) -> None:
        """Publish what was saved up of one publisher, at once, and hold nothing any more."""
        now_s, saved = self._clock(), list(self._saved)
        self._saved.clear()
        numbers = [
            (topic, self._qos_now(topic), self.ledger.attempted(topic, now_s)) for topic in saved
        ]
        told = [(topic, self._payload(topic, number).hex(), qos) for topic, qos, number in numbers]
        if saved:
            await burst.hand_over(self._publishers[saved[0]].place, told)
        for topic, _, number in numbers:
            self.ledger.acknowledged(topic, number)
        self._saved.clear()
        self._held.clear()

    def _qos_now(self, topic: str) -> int:
        return self._qos[len(self.ledger.streams[topic].sent_s) % len(self._qos)]

    def _payload(self, topic: str, number: int) -> bytes:
        stamp = _STAMP.pack(self._run, self._place_of[topic], number)
        return stamp.ljust(self._payload_bytes, b".")

    def _publish_one(self, topic: str) -> None:
        client = self._publishers[topic]
        qos = self._qos_now(topic)
        if not client.ready(qos):
            return
        number = self.ledger.attempted(topic, self._clock())
        client.publish(topic, self._payload(topic, number), number, qos)

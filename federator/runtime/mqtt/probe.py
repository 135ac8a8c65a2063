"""A careful, slow MQTT client that asks a broker one question at a time.

The agent's own link hides reason codes and reconnects for ever; ``doctor`` and ``tap`` want the
opposite: every answer as the broker gave it, a deadline on each, and the first failure at once.
Subscriptions are QoS 0 by default; publications of higher QoS are acknowledged by the caller.

Source: OASIS MQTT 5.0.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import mqtt5

from federator.config.brokers import BrokerAddress
from federator.errors import LinkError
from federator.runtime.mqtt.endpoint import endpoint_of
from federator.runtime.mqtt.failures import (
    NoAnswerError,
    check_greeting,
    dismissal,
    explain,
    other_way,
    refusal,
)
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.mqtt.wire import PINGREQ, reads

PACKET_BYTES_MAX = 2_097_152
MESSAGES_MAX = 4_096
KEEP_ALIVE_S = 30
ANSWER_SECONDS_MAX = 5.0
"""Time limit for the connection, and for each answer."""

NO_PERMISSION, CONFIG = 77, 78
"""Exit codes of ``sysexits.h``."""

Question = mqtt5.SubscribePacket | mqtt5.UnsubscribePacket | mqtt5.PublishPacket
Answer = mqtt5.SubAckPacket | mqtt5.UnsubAckPacket | mqtt5.PubAckPacket


class RefusedError(LinkError):
    """The broker answered CONNECT with a refusal; ``code`` is its reason."""

    def __init__(self, place: str, connack: mqtt5.ConnAckPacket) -> None:
        super().__init__(f"{place}: {refusal(connack)}")
        self.code = connack.reason_code

    @property
    def config_exit_code(self) -> int:
        """77 if another user name, password or certificate could help, otherwise 78."""
        code = mqtt5.ConnAckReasonCode
        about_us = (
            code.NOT_AUTHORIZED,
            code.BAD_USER_NAME_OR_PASSWORD,
            code.BAD_AUTHENTICATION_METHOD,
            code.BANNED,
        )
        return NO_PERMISSION if self.code in about_us else CONFIG


def plain(code: mqtt5.PubAckReasonCode) -> str:
    return str(code.name).replace("_", " ").lower()


def is_taken(answer: str) -> bool:
    """Whether ``answer``, from ``plain``, means that the broker accepted a publication."""
    return answer in ("success", "no matching subscribers")


@dataclass(eq=False, repr=False)
class BrokerProbe:
    """One connection to a broker; use as an async context manager."""

    connection: BrokerAddress
    client_id: str

    def __post_init__(self) -> None:
        self._place = self.connection.reached_at
        self.connack = mqtt5.ConnAckPacket()
        self.messages: asyncio.Queue[mqtt5.PublishPacket] = asyncio.Queue(MESSAGES_MAX)
        self.messages_dropped = 0
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._packet_id = 0
        self._held: dict[str, mqtt5.TopicFilter] = {}  # the current subscriptions
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        host, reached = self.connection.address.host, False
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                self._reader, self._writer = await endpoint_of(self.connection).streams()
                reached = True
                try:
                    await self._connect()
                except ConnectionError:
                    self._writer.transport.abort()
                    reset = ConnectionResetError()
                    text = f"connection reset during CONNECT{self._other_way(reset)}"
                    raise LinkError(text) from None
                except BaseException:
                    self._writer.transport.abort()
                    raise
        except RefusedError:
            raise
        except LinkError as error:
            raise LinkError(f"{self._place}: {error}") from error
        except TimeoutError as error:
            hint = self._other_way(NoAnswerError()) if reached else ""
            text = f"{self._place}: no answer within {ANSWER_SECONDS_MAX:g} s{hint}"
            raise LinkError(text) from error
        except OSError as error:
            text = f"{self._place}: {explain(error, host=host)}{self._other_way(error)}"
            raise LinkError(text) from error
        self._tasks = [
            asyncio.create_task(self._receive(), name="probe receive"),
            asyncio.create_task(self._ping(), name="probe ping"),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._writer.write(mqtt5.DisconnectPacket().write())
        self._writer.close()
        self.lost.cancel()

    @property
    def place(self) -> object:
        """The socket address at the other end, whatever name it was reached by."""
        return self._writer.get_extra_info("peername")

    @property
    def peer(self) -> str:
        """The IP address at the other end; empty without one."""
        peername = self._writer.get_extra_info("peername")
        return str(peername[0]) if isinstance(peername, tuple) else ""

    def _other_way(self, error: BaseException | None) -> str:
        """A hint for a port that may not speak what we speak."""
        address = self.connection.address
        return other_way(error, tls=address.tls, port=address.port)

    async def _connect(self) -> None:
        packet = mqtt5.ConnectPacket(
            self.client_id,
            username=self.connection.username,
            password=self.connection.secret(),
            clean_start=True,
            keep_alive=2 * KEEP_ALIVE_S,
            max_packet_size=PACKET_BYTES_MAX,
        )
        self._writer.write(packet.write())
        self._incoming = reads(
            self._reader, packet_bytes_max=PACKET_BYTES_MAX, on_first=check_greeting
        )
        async for _, others in self._incoming:
            if not others or not isinstance(others[0], mqtt5.ConnAckPacket):
                raise LinkError("did not answer CONNECT with CONNACK: is it an MQTT 5 broker?")
            self.connack = others[0]
            if self.connack.reason_code != mqtt5.ConnAckReasonCode.SUCCESS:
                raise RefusedError(self._place, self.connack)
            return
        raise LinkError(f"hung up during CONNECT{self._other_way(None)}")

    async def _receive(self) -> None:
        reason = "the broker hung up"
        try:
            async for publishes, others in self._incoming:
                for packet in others:
                    self._on_packet(packet)
                for publish, _, _ in publishes:
                    if self.messages.full():
                        self.messages.get_nowait()
                        self.messages_dropped += 1
                    self.messages.put_nowait(publish)
        except LinkError as error:
            reason = str(error)
        except OSError as error:
            reason = explain(error, host=self.connection.address.host)
        self._lose(LinkError(f"{self._place}: {reason}"))

    def _on_packet(self, packet: mqtt5.Packet) -> None:
        match packet:
            case mqtt5.SubAckPacket() | mqtt5.UnsubAckPacket() | mqtt5.PubAckPacket():
                answer = self._answers.pop(packet.packet_id, None)
                if answer is not None and not answer.done():
                    answer.set_result(packet)
            case mqtt5.DisconnectPacket():
                self._lose(LinkError(f"{self._place}: {dismissal(packet)}"))
            case _:
                pass

    def _lose(self, error: LinkError) -> None:
        if not self.lost.done():
            self.lost.set_exception(error)
            self.lost.exception()  # mark as retrieved: there may be no reader
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)
        self._answers.clear()

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(KEEP_ALIVE_S)
            self._writer.write(PINGREQ)
            # For the log of an agent that started after us; we do not wait for the answer.
            if self._held:
                again = mqtt5.SubscribePacket(self._next_id(), [*self._held.values()])
                self._writer.write(again.write())

    async def subscribe(
        self, *filters: str, qos: mqtt5.QoS = mqtt5.QoS.AT_MOST_ONCE
    ) -> list[mqtt5.SubAckReasonCode]:
        """Subscribe; return the broker's answer to each filter."""
        topic_filters = [mqtt5.TopicFilter(f, max_qos=qos) for f in filters]
        answer = await self._query(lambda id: mqtt5.SubscribePacket(id, topic_filters))
        assert isinstance(answer, mqtt5.SubAckPacket)
        self._held |= {f: live_filter(f, qos) for f in filters}
        return answer.reason_codes

    async def unsubscribe(self, *filters: str) -> None:
        """Unsubscribe and wait for the answer."""
        for filter in filters:
            self._held.pop(filter, None)
        await self._query(lambda id: mqtt5.UnsubscribePacket(id, list(filters)))

    async def publish(self, topic: str, payload: bytes) -> mqtt5.PubAckReasonCode:
        """Publish at QoS 1: only then does the broker answer."""
        qos = mqtt5.QoS.AT_LEAST_ONCE
        answer = await self._query(
            lambda id: mqtt5.PublishPacket(topic, payload=payload, qos=qos, packet_id=id)
        )
        assert isinstance(answer, mqtt5.PubAckPacket)
        return answer.reason_code

    def publish_loosely(self, topic: str, payload: bytes) -> None:
        """Publish at QoS 0, without an answer."""
        self._writer.write(mqtt5.PublishPacket(topic, payload=payload).write())

    def acknowledge(self, packet: mqtt5.PublishPacket) -> None:
        """Acknowledge a publication of QoS 1."""
        if packet.packet_id is not None:
            self._writer.write(mqtt5.PubAckPacket(packet.packet_id).write())

    async def next_message(self) -> mqtt5.PublishPacket:
        """Wait for the next publication.

        Raises:
            LinkError: The connection is lost and no publication is left.
        """
        if not self.messages.empty():
            return self.messages.get_nowait()
        arrival = asyncio.create_task(self.messages.get(), name="probe next message")
        try:
            events: set[asyncio.Future[Any]] = {arrival, self.lost}
            await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
            if not arrival.done():
                await self.lost
            return await arrival
        finally:
            arrival.cancel()

    def _next_id(self) -> int:
        self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id

    async def _query(self, question: Callable[[int], Question]) -> Answer:
        """The answer to the packet that ``question`` makes from its packet identifier."""
        if self.lost.done():
            await self.lost
        packet_id = self._next_id()
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answers[packet_id] = answer
        self._writer.write(question(packet_id).write())
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                return await answer
        except TimeoutError as error:
            self._answers.pop(packet_id, None)
            raise LinkError(f"{self._place}: no answer within {ANSWER_SECONDS_MAX:g} s") from error

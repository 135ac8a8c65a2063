"""Prepare or end a client's session at a broker by a short connection of its own.

A connection with a client id owns its session. So for an absent client we connect with its id,
subscribe its filters, acknowledge nothing, and disconnect: the broker queues for the client from
then on. ``connection`` explains why a session of ours is wiped.

Source: OASIS MQTT 5.0, sections 3.1.2.4, 3.1.2.11.2 and 4.1; tried on Mosquitto 2.0.11.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TypeVar

import mqtt5

from federator.errors import LinkError
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.mqtt.wire import LENGTH_BYTES_MAX, reads

PACKET_BYTES_MAX = 16 * 1024 * 1024
ANSWER_SECONDS_MAX = 5.0
FILTERS_PER_PACKET_MAX = 64
NEVER_EXPIRES_S = 0xFFFFFFFF
KEEP_ALIVE_S = 30
DISCONNECT = b"\xe0\0"  # the same in 3.1.1 and 5
_CONNACK = 0x20

_Answer = TypeVar("_Answer", mqtt5.ConnAckPacket, mqtt5.SubAckPacket)


async def prepare_session(
    endpoint: Endpoint, client_id: str, filters: Mapping[str, int], *, keep_s: int
) -> list[str]:
    """Have the broker keep a session of ``client_id`` that subscribes ``filters`` (with their QoS).

    An existing session stays, and never expires from now on: we cannot learn its expiry. A new one
    lasts ``keep_s``.

    Returns:
        Filters that the broker refused.

    Raises:
        OSError: Nothing listens there, or the broker hung up.
        LinkError: The broker refuses us, or it is no MQTT broker.
        TimeoutError: The broker does not answer.
    """
    async with _conversation(endpoint) as broker:
        existed = await broker.connect(client_id, clean=False, expiry_s=keep_s)
        refused = await broker.subscribe(filters)
        broker.leave(NEVER_EXPIRES_S if existed else None)
    return refused


async def end_session(endpoint: Endpoint, client_id: str) -> None:
    """Have the broker drop the session of ``client_id``. Raises as ``prepare_session``."""
    async with _conversation(endpoint) as broker:
        await broker.connect(client_id, clean=True, expiry_s=0)
        broker.leave(None)


async def wipe_session(endpoint: Endpoint, connect: bytes) -> bool:
    """Connect with ``connect``, a CONNECT of either version with a clean start, and disconnect.

    Returns:
        Whether the broker accepted: only then is the session gone.

    Raises:
        OSError, UnicodeError, LinkError: As ``Endpoint.connect``.
    """
    reader, writer = await endpoint.streams()
    try:
        writer.write(connect)
        accepted = await _is_accepted(reader)
        writer.write(DISCONNECT)
        with contextlib.suppress(OSError):
            await writer.drain()
    finally:
        writer.close()
    return accepted


async def _is_accepted(reader: asyncio.StreamReader) -> bool:
    """Whether the answer is a CONNACK with success, which looks alike in both versions."""
    try:
        first = (await reader.readexactly(1))[0]
        for _ in range(LENGTH_BYTES_MAX):
            if (await reader.readexactly(1))[0] < 0x80:
                break
        _flags, reason = await reader.readexactly(2)
    except asyncio.IncompleteReadError:
        return False
    return first == _CONNACK and reason == 0


@contextlib.asynccontextmanager
async def _conversation(endpoint: Endpoint) -> AsyncIterator["_Conversation"]:
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        reader, writer = await endpoint.streams()
        try:
            yield _Conversation(endpoint, reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class _Conversation:
    """One short connection, on which one packet is answered after another."""

    def __init__(
        self, endpoint: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._endpoint = endpoint
        self._reads = reads(reader, packet_bytes_max=PACKET_BYTES_MAX)
        self._writer = writer

    async def connect(self, client_id: str, *, clean: bool, expiry_s: int) -> bool:
        """Connect as ``client_id``; return whether the broker had a session for it."""
        packet = mqtt5.ConnectPacket(
            client_id,
            clean_start=clean,
            keep_alive=KEEP_ALIVE_S,
            username=self._endpoint.username,
            password=self._endpoint.password,
            session_expiry_interval=expiry_s,
            receive_max=1,
        )
        self._writer.write(packet.write())
        answer = await self._answer(mqtt5.ConnAckPacket)
        if answer.reason_code != mqtt5.ConnAckReasonCode.SUCCESS:
            raise LinkError(f"refused: {answer.reason_code.name.lower().replace('_', ' ')}")
        return answer.session_present

    async def subscribe(self, filters: Mapping[str, int]) -> list[str]:
        refused: list[str] = []
        names = sorted(filters)
        for at in range(0, len(names), FILTERS_PER_PACKET_MAX):
            part = names[at : at + FILTERS_PER_PACKET_MAX]
            topic_filters = [live_filter(name, mqtt5.QoS(filters[name])) for name in part]
            self._writer.write(mqtt5.SubscribePacket(at + 1, topic_filters).write())
            answer = await self._answer(mqtt5.SubAckPacket)
            codes = zip(part, answer.reason_codes, strict=True)
            refused += [name for name, code in codes if int(code) >= 0x80]
        return refused

    def leave(self, expiry_s: int | None) -> None:
        self._writer.write(mqtt5.DisconnectPacket(session_expiry_interval=expiry_s).write())

    async def _answer(self, kind: type[_Answer]) -> _Answer:
        """The next packet of ``kind``; publications that come before it are left unacknowledged."""
        async for _, packets in self._reads:
            for packet in packets:
                if isinstance(packet, kind):
                    return packet
                if isinstance(packet, mqtt5.DisconnectPacket):
                    raise LinkError(f"dismissed: {packet.reason_code.name.lower()}")
        raise ConnectionResetError("the broker closed the connection")

"""Forgetting a session at a broker, by a connection of its own.

A session that must be new and must outlast its broker takes two connections: Mosquitto up to 2.0
saves, when it stops in order, only the sessions that did not begin with a clean start.

Source: measured on Mosquitto 2.0.11; OASIS MQTT 5.0, section 3.1.2.4.
"""

import asyncio
import contextlib

from mqtt5 import ConnAckPacket, ConnAckReasonCode, DisconnectPacket, Packet

from federator.runtime.mqtt_endpoint import Endpoint
from federator.runtime.mqtt_wire import read_packets

READ_BYTES = 4_096
ANSWER_BYTES_MAX = 65_536


async def wipe_session(endpoint: Endpoint, connect: bytes) -> bool:
    """Connect with ``connect``, a CONNECT packet with a clean start, and leave.

    Returns:
        Whether the broker let us in: only then the session is gone.

    Raises:
        OSError: Nobody there.
        LinkError: No MQTT broker.
    """
    reader, writer = await endpoint.streams()
    try:
        writer.write(connect)
        answer = await _first_packet(reader)
        writer.write(DisconnectPacket().write())
        with contextlib.suppress(OSError):
            await writer.drain()
    finally:
        writer.close()
    return isinstance(answer, ConnAckPacket) and answer.reason_code == ConnAckReasonCode.SUCCESS


async def _first_packet(reader: asyncio.StreamReader) -> Packet | None:
    received = b""
    packets: list[Packet] = []
    while not packets and len(received) < ANSWER_BYTES_MAX:
        chunk = await reader.read(READ_BYTES)
        if not chunk:
            break
        received += chunk
        read_packets(memoryview(received), [], packets)
    return packets[0] if packets else None

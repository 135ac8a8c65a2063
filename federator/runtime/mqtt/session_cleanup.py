"""Forgetting a session at a broker, by a connection of its own: why so, ``connection`` tells.

Source: OASIS MQTT 5.0, 3.1.2.4.
"""

import asyncio
import contextlib
from typing import Final

from federator.runtime.mqtt.endpoint import Endpoint

DISCONNECT: Final = b"\xe0\0"  # of 3.1.1 and of 5
LENGTH_BYTES_MAX: Final = 4
_CONNACK: Final = 0x20


async def wipe_session(endpoint: Endpoint, connect: bytes) -> bool:
    """Connect with ``connect``, a CONNECT of either version with a clean start, and leave.

    Returns:
        Whether the broker let us in: only then the session is gone.

    Raises:
        OSError: Nobody there.
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
    """Whether the answer is a CONNACK that refuses nothing, which looks alike in both versions."""
    try:
        first = (await reader.readexactly(1))[0]
        for _ in range(LENGTH_BYTES_MAX):
            if (await reader.readexactly(1))[0] < 0x80:
                break
        _flags, reason = await reader.readexactly(2)
    except asyncio.IncompleteReadError:
        return False
    return first == _CONNACK and reason == 0

"""Messages of agents, gateways and operators on one broker, as JSON, checked on receipt.

They are those of ``guide``, ``gateways`` and ``operators``. Readers ignore fields they do not know,
so that agents and gateways may be of different releases.

Source: docs/protocol.md 15.
"""

from functools import cache
from typing import Final, TypeVar

import msgspec

from federator.errors import DecodeError
from federator.protocol.messages.fields import decoded
from federator.protocol.messages.guide import GUIDE_VERSION, Guide

MESSAGE_BYTES_MAX = 1_048_576

_M = TypeVar("_M", bound=msgspec.Struct)

_encoder: Final = msgspec.json.Encoder()


def encode(message: msgspec.Struct) -> bytes:
    return _encoder.encode(message)


def decode(kind: type[_M], payload: bytes) -> _M:
    """The message of this ``kind`` in ``payload``.

    Raises:
        DecodeError: The payload is too long, malformed, out of range or not of ``kind``.
    """
    message: _M = decoded(_decoder(kind), kind.__name__, payload, MESSAGE_BYTES_MAX)
    if isinstance(message, Guide) and message.version != GUIDE_VERSION:
        raise DecodeError(f"Guide: version {message.version}, {GUIDE_VERSION} wanted")
    return message


@cache
def _decoder(kind: type[_M]) -> msgspec.json.Decoder[_M]:
    return msgspec.json.Decoder(kind)

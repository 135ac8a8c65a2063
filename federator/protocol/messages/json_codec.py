"""Messages of agents, gateways and operators on one broker, as JSON, checked on receipt.

Readers ignore fields they do not know, so that agents and gateways may be of different releases.

Source: docs/protocol.md 15.
"""

from typing import Final, TypeVar, get_args

import msgspec

from federator.errors import DecodeError
from federator.protocol.messages.fields import Decoder, decoded
from federator.protocol.messages.gateways import (
    Claim,
    Mark,
    Recall,
    Recalled,
    SessionReport,
    Settle,
    Settled,
    Taken,
)
from federator.protocol.messages.guide import GUIDE_VERSION, Guide, Health
from federator.protocol.messages.operators import Drain, Trace, Traced

MESSAGE_BYTES_MAX = 1_048_576

JsonMessage = (
    Guide
    | SessionReport
    | Settle
    | Settled
    | Mark
    | Taken
    | Claim
    | Recall
    | Recalled
    | Health
    | Trace
    | Traced
    | Drain
)
_M = TypeVar("_M", bound=JsonMessage)

_encoder: Final = msgspec.json.Encoder()
_decoders: Final = {kind: msgspec.json.Decoder(kind) for kind in get_args(JsonMessage)}


def encode(message: JsonMessage) -> bytes:
    """The JSON form of ``message``."""
    return _encoder.encode(message)


def decode(kind: type[_M], payload: bytes) -> _M:
    """The message of this ``kind`` in ``payload``.

    Raises:
        DecodeError: When the payload is too long, malformed, out of range or not of ``kind``.
    """
    decoder: Decoder[object] = _decoders[kind]
    message = decoded(decoder, kind.__name__, payload, MESSAGE_BYTES_MAX)
    if isinstance(message, Guide) and message.version != GUIDE_VERSION:
        raise DecodeError(f"Guide: version {message.version}, {GUIDE_VERSION} wanted")
    assert isinstance(message, kind)
    return message

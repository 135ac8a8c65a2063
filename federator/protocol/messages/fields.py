"""Field types that messages share, with their checks, and decoding."""

from typing import Annotated, Any, Final, TypeVar

import msgspec

from federator.errors import DecodeError
from federator.protocol.types import BROKER_ID_MAX, EPOCH_MAX, BrokerId, Epoch

Id = Annotated[BrokerId, msgspec.Meta(ge=0, le=BROKER_ID_MAX)]
EpochField = Annotated[Epoch, msgspec.Meta(ge=0, le=EPOCH_MAX)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=65_535)]
"""A topic, a filter or a client id."""

Token = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern="^[A-Za-z0-9_.-]+$")]
"""A name that may be a level of a topic."""

_T = TypeVar("_T")
Decoder = msgspec.json.Decoder[_T] | msgspec.msgpack.Decoder[_T]


_anything: Final = msgspec.json.Decoder()


def json_value(what: str, data: bytes, bytes_max: int) -> Any:  # noqa: ANN401 - of any shape
    """The JSON in ``data``, as ``decoded``: Python's own parser fails on deep nesting.

    Raises:
        DecodeError: ``data`` is too long, or no JSON.
    """
    return decoded(_anything, what, data, bytes_max)


def decoded(decoder: Decoder[_T], what: str, data: bytes, bytes_max: int) -> _T:
    """The value in ``data``, which was received or stored as ``what``.

    Raises:
        DecodeError: ``data`` is too long, or malformed.
    """
    if len(data) > bytes_max:
        raise DecodeError(f"{what}: {len(data)} bytes, at most {bytes_max} wanted")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as error:
        raise DecodeError(f"{what}: {error}") from error

"""Messages between a reader and an agent about batches: available ones, a request, an answer.

Offsets are (spool, batch), as in a log with many readers: the live push may lose batches, the
reader notices by the numbers, and requests those that it misses.

Source: docs/metrics.md, "Live" and "Replay".
"""

from functools import partial
from hashlib import blake2b
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from federator.protocol.messages.fields import decoded
from federator.protocol.telemetry.records import Id, Natural, Positive, Signed, SpoolId

ASK_BYTES_MAX: Final = 1_024
HEADER_BYTES_MAX: Final = 1_024

_DIGEST_BYTES: Final = 32

Token = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Retained on ``metrics/head``: the batches in the spool, both ends included."""

    v: Literal[1] = 1  # version of this format
    broker: Id  # the broker of the spool
    spool: SpoolId  # which
    first: Positive  # the oldest batch held; ``last + 1`` while none is
    last: Natural  # the newest; 0 before the first
    at_us: Signed  # Unix time, microseconds


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """On ``metrics/ask``: requests batches ``first`` to ``last`` on ``metrics/again/<to>``."""

    v: Literal[1] = 1
    spool: SpoolId
    first: Positive
    last: Positive
    to: Token

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise ValueError(f"batches {self.first} to {self.last}, the last is before the first")


class Again(msgspec.Struct, frozen=True, kw_only=True, tag_field="table", tag="again"):
    """The first line of each message of an answer; the whole batches follow, a record a line."""

    v: Literal[1] = 1  # version of this format
    spool: SpoolId  # the spool of the batches that follow
    batch_first: Positive  # the first of them
    # The last; below ``batch_first`` when none follow: the spool has none of the requested.
    batch_last: Natural
    held_first: Positive  # the spool's present batches, as in ``Head``
    held_last: Natural  # likewise
    # Of all that follows the first line; earlier releases send none.
    digest: Annotated[str, msgspec.Meta(max_length=2 * _DIGEST_BYTES)] | UnsetType = UNSET


def digest_of(lines: bytes) -> str:
    """The digest of an answer's other lines in its first line, so that the proof covers them."""
    return blake2b(lines, digest_size=_DIGEST_BYTES).hexdigest()


decode_head: Final = partial(
    decoded, msgspec.json.Decoder(Head), "head", bytes_max=HEADER_BYTES_MAX
)
decode_ask: Final = partial(decoded, msgspec.json.Decoder(Ask), "ask", bytes_max=ASK_BYTES_MAX)
decode_again: Final = partial(
    decoded, msgspec.json.Decoder(Again), "again", bytes_max=HEADER_BYTES_MAX
)
"""Each decodes one kind of message; ``DecodeError``: it is none of this version."""

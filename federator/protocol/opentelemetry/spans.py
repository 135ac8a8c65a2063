"""OpenTelemetry spans, independent of its libraries: their contents and ids.

A trace is one frame on its way, a span is what one agent did with it. Agents exchange no messages
about traces. A trace's id is computed from what every copy of the frame has on its label, and a
span's id from its trace and its agent; so an agent that receives a frame knows, without asking, the
span of the agent that sent it.

The same rule decides which frames are traced at all. The last 56 bits of a trace's id are the
number that OpenTelemetry's "consistent probability sampling" compares, and they begin with the
frame's place on its origin's circle, by which the metrics stream samples, too. An agent with a
smaller share follows a subset of what others follow.

Source: docs/how-to/opentelemetry.md; W3C Trace Context; OpenTelemetry, "TraceState: Probability
Sampling".
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from federator.protocol.types import BrokerId

PLACES: Final = 2**32
"""Places on an origin's circle: see ``records.place_of``."""

_RANDOM_BITS: Final = 56
_PLACE_SHIFT: Final = _RANDOM_BITS - 32

Value: TypeAlias = str | bool | int | Sequence[str] | Sequence[int]
"""The type of an attribute's value."""


class FrameName(NamedTuple):
    """What all copies of one frame have in common."""

    origin: BrokerId
    epoch: int
    custody: int  # 1: of the frames under custody, which have their own numbers
    seq: int


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One complete span. Times are in microseconds since 1970."""

    name: str
    kind: Literal["producer", "consumer"]
    trace_id: int  # 128 bits
    span_id: int  # 64 bits
    parent_id: int | None  # 64 bits
    start_us: int
    end_us: int
    attributes: Mapping[str, Value]
    error: str = ""  # the error, if there is one
    trace_state: str = ""  # as in W3C's header


def places_of(share: float) -> int:
    """The number of places that make up ``share``, from 0 to 1; at least one unless it is 0.

    The places followed are those below that number.
    """
    return max(round(share * PLACES), 1 if share > 0 else 0)


def trace_id_of(federation: str, frame: FrameName, place: int) -> int:
    """The trace id of ``frame``, which has the place ``place`` on the circle."""
    name = f"{federation} {frame.origin} {frame.epoch} {frame.custody} {frame.seq}"
    digest = blake2b(name.encode(), digest_size=16, person=b"federator trace").digest()
    drawn = int.from_bytes(digest, "big")
    # We follow low places, but the sampling keeps high numbers: so the place is inverted.
    turned = (PLACES - 1 - place) << _PLACE_SHIFT
    return drawn >> _RANDOM_BITS << _RANDOM_BITS | turned | drawn & ((1 << _PLACE_SHIFT) - 1)


def trace_state_of(places: int) -> str:
    """The trace state for a sample of so many ``places``: readers may extrapolate."""
    threshold = (PLACES - places) << _PLACE_SHIFT
    return f"ot=th:{f'{threshold:014x}'.rstrip('0') or '0'}"


def span_id_of(trace_id: int, *what: int | str) -> int:
    """The id of a span within a trace: at a broker; of a delivery there; of a hop between two."""
    name = " ".join(map(str, (trace_id, *what)))
    digest = blake2b(name.encode(), digest_size=8, person=b"federator span").digest()
    return int.from_bytes(digest, "big") or 1

"""Traces a topic's path and timing: a trace takes the path, and its echoes report.

A trace is a frame like any other, made as if a client had published on the topic, but without
publications, so no client receives anything. So it takes the same path as data, through the same
queues and brokers; its label marks it as a trace. Its body is a logbook, in which every agent on
the way records the time; each sends a copy of the logbook to the origin, back along the path.

Clocks differ, so each entry counts by the clock of its writer. The time from trace to echo, by the
origin's clock alone, is certain, and bounds how far clocks can be off.

Source: docs/observability.md, "A topic on its way"; IP's traceroute, with the loose ends tied.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec

from federator.errors import DecodeError
from federator.protocol.filters import validate_topic
from federator.protocol.messages.control import PATH_MAX, TRACE_HOPS_MAX, TRACE_WHY_MAX, TraceEcho
from federator.protocol.types import BROKER_ID_MAX, BrokerId, Epoch

_Id = Annotated[BrokerId, msgspec.Meta(ge=0, le=BROKER_ID_MAX)]
_Time = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Stop(NamedTuple):
    """When a trace was at a broker's agent, by the agent's clock."""

    broker: _Id
    at_us: _Time


class Logbook(msgspec.Struct, frozen=True, array_like=True):
    """The body of a trace."""

    topic: str  # the topic's name in the federation
    # The origin first.
    stops: Annotated[tuple[Stop, ...], msgspec.Meta(min_length=1, max_length=PATH_MAX)]

    def at(self, broker: BrokerId, at_us: int) -> "Logbook":
        return Logbook(self.topic, (*self.stops, Stop(broker, at_us)))


class Onward(NamedTuple):
    """What happens to a trace at one broker; fields as in ``TraceEcho``."""

    first: bool
    delivers: bool
    next_hops: Sequence[tuple[BrokerId, int]]
    why: str = ""
    transports: Sequence[str] = ()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Logbook)


def write_logbook(logbook: Logbook) -> bytes:
    return _encoder.encode(logbook)


def read_logbook(body: bytes | memoryview, *, sender: BrokerId) -> Logbook:
    """Decode the logbook in the body of a frame from ``sender``.

    Raises:
        DecodeError: There is none, or the last entry is not the sender's, or there is no room.
    """
    try:
        logbook = _decoder.decode(body)
        validate_topic(logbook.topic)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DecodeError(f"trace: {error}") from error
    if logbook.stops[-1].broker != sender:
        raise DecodeError(f"trace: of {sender}, last seen by {logbook.stops[-1].broker}")
    if len(logbook.stops) == PATH_MAX:
        raise DecodeError(f"trace: {PATH_MAX} stops already")
    return logbook


def echo(logbook: Logbook, onward: Onward, *, epoch: Epoch, number: int) -> TraceEcho:
    """The last broker's report to the origin."""
    stops = logbook.stops
    return TraceEcho(
        sender=stops[-1].broker,
        epoch=epoch,
        number=number,
        path=tuple(stop.broker for stop in stops),
        times_us=tuple(stop.at_us for stop in stops),
        at=len(stops) - 1,
        first=onward.first,
        delivers=onward.delivers,
        next_hops=tuple(onward.next_hops[:TRACE_HOPS_MAX]),
        why=onward.why[:TRACE_WHY_MAX],
        transports=tuple(onward.transports[:TRACE_HOPS_MAX]),
    )


def towards_origin(echo: TraceEcho, self_id: BrokerId) -> TraceEcho | None:
    """``echo`` as we forward it, or keep it when ``at`` is 0; ``None``: it is not for us."""
    at = echo.at - 1
    fits = len(echo.path) == len(echo.times_us) > echo.at > 0
    if not fits or echo.path[echo.at] != echo.sender or echo.path[at] != self_id:
        return None
    return msgspec.structs.replace(echo, sender=self_id, at=at)

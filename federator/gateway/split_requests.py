"""One SUBSCRIBE or UNSUBSCRIBE of a client, asked of several brokers, and their one answer.

Each broker is asked for its part under the client's packet id. A filter that stands at several is
granted when all of them grant it, at the least they give. What some grant and others refuse is
refused, and taken back where it was granted before the client hears of it.

Source: OASIS MQTT 5.0, sections 3.8 to 3.11.
"""

from dataclasses import dataclass, field
from typing import Final

from federator.gateway.wire import (
    Answer,
    Kind,
    MalformedError,
    Properties,
    Reason,
    Subscribe,
    Unsubscribe,
    Version,
    write_answer,
    write_subscribe,
    write_unsubscribe,
)

OPEN_MAX: Final = 1_024
"""Requests of one client that no broker answered yet."""

_REFUSED: Final = 0x80

Ask = tuple[int, bytes]
"""A way, and a packet for it."""


@dataclass(slots=True)
class _Request:
    """One that is not answered.

    Attributes:
        kind: Of the answer.
        filters: In the client's order.
        ways: On which each filter stands.
        codes: By way, what it said to each filter; ``None`` where it is not asked.
        awaited: Ways that have not answered.
        undoing: What some granted is being taken back.
    """

    packet_id: int
    kind: Kind
    filters: tuple[str, ...]
    ways: tuple[tuple[int, ...], ...]
    codes: list[dict[int, int]]
    awaited: dict[int, tuple[int, ...]] = field(default_factory=dict)
    properties: Properties = ()
    undoing: bool = False


class SplitRequests:
    """The requests of one client.

    Args:
        version: Of the protocol.
    """

    __slots__ = ("_open", "_version")

    def __init__(self, version: Version) -> None:
        self._version = version
        self._open: list[_Request] = []

    def subscribe(
        self, request: Subscribe, ways: tuple[tuple[int, ...], ...]
    ) -> tuple[list[Ask], bytes]:
        """What to ask of whom, and the answer if nobody is to be asked.

        Args:
            request: The client's.
            ways: On which each of its filters stands; none where it is refused.

        Raises:
            MalformedError: Too many wait for their answer.
        """
        codes = [
            {} if each else {0: int(Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED)} for each in ways
        ]
        names = tuple(filter for filter, _ in request.filters)
        opened = _Request(request.packet_id, Kind.SUBACK, names, ways, codes)
        asks: list[Ask] = []
        for way, places in _by_way(ways).items():
            opened.awaited[way] = places
            part = tuple(request.filters[place] for place in places)
            wish = Subscribe(request.packet_id, part, request.properties)
            asks.append((way, write_subscribe(wish, self._version)))
        return asks, self._open_or_answer(opened)

    def unsubscribe(
        self, request: Unsubscribe, ways: tuple[tuple[int, ...], ...]
    ) -> tuple[list[Ask], bytes]:
        """Likewise; a filter that is refused is not there."""
        codes = [{} if each else {0: int(Reason.NO_SUBSCRIPTION_EXISTED)} for each in ways]
        opened = _Request(request.packet_id, Kind.UNSUBACK, request.filters, ways, codes)
        asks: list[Ask] = []
        for way, places in _by_way(ways).items():
            opened.awaited[way] = places
            part = tuple(request.filters[place] for place in places)
            wish = Unsubscribe(request.packet_id, part, request.properties)
            asks.append((way, write_unsubscribe(wish, self._version)))
        return asks, self._open_or_answer(opened)

    def on_answer(self, way: int, kind: Kind, answer: Answer) -> tuple[list[Ask], bytes]:
        """A way answered: what to ask now, and the answer for the client when it is whole."""
        request = self._found(way, kind, answer.packet_id)
        if request is None:
            return [], b""
        places = request.awaited.pop(way)
        if not request.undoing:
            request.properties = request.properties or answer.properties
            codes = answer.codes or bytes(len(places))  # UNSUBACK of 3.1.1 has none
            for place, code in zip(places, codes, strict=False):
                request.codes[place][way] = code
        if request.awaited:
            return [], b""
        asks = [] if request.undoing else self._undo(request)
        if asks:
            return asks, b""
        self._open.remove(request)
        return [], self._answer(request)

    def _found(self, way: int, kind: Kind, packet_id: int) -> _Request | None:
        for request in self._open:
            awaits = Kind.UNSUBACK if request.undoing else request.kind
            if request.packet_id == packet_id and awaits == kind and way in request.awaited:
                return request
        return None

    def _undo(self, request: _Request) -> list[Ask]:
        """Take back what some granted and others refused."""
        if request.kind != Kind.SUBACK:
            return []
        back: dict[int, list[int]] = {}
        for place, codes in enumerate(request.codes):
            if max(codes.values(), default=0) >= _REFUSED:
                for way, code in codes.items():
                    if code < _REFUSED:
                        back.setdefault(way, []).append(place)
        request.undoing = bool(back)
        request.awaited = {way: tuple(places) for way, places in back.items()}
        asks: list[Ask] = []
        for way, places in back.items():
            names = tuple(request.filters[place] for place in places)
            wish = Unsubscribe(request.packet_id, names)
            asks.append((way, write_unsubscribe(wish, self._version)))
        return asks

    def _open_or_answer(self, request: _Request) -> bytes:
        if not request.awaited:
            return self._answer(request)
        if len(self._open) >= OPEN_MAX:
            raise MalformedError(Reason.QUOTA_EXCEEDED, f"more than {OPEN_MAX} open requests")
        self._open.append(request)
        return b""

    def _answer(self, request: _Request) -> bytes:
        merged = bytes(_merged([*codes.values()]) for codes in request.codes)
        answer = Answer(request.packet_id, merged, request.properties)
        return write_answer(request.kind, answer, self._version)


def _by_way(ways: tuple[tuple[int, ...], ...]) -> dict[int, tuple[int, ...]]:
    """The places of the filters that stand on each way."""
    places: dict[int, list[int]] = {}
    for place, each in enumerate(ways):
        for way in each:
            places.setdefault(way, []).append(place)
    return {way: tuple(places[way]) for way in sorted(places)}


def _merged(codes: list[int]) -> int:
    """One code for what several brokers said to one filter."""
    worst = max(codes, default=0)
    return worst if worst >= _REFUSED else min(codes, default=0)

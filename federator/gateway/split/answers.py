"""One answer of several brokers: to a client's CONNECT, SUBSCRIBE and UNSUBSCRIBE.

A session that some brokers have and others have not is none: the client would believe in
subscriptions that are not there. It is refused once, and the remains are ended; the next time it
gets a fresh one.

For its subscriptions each broker is asked for its part under the client's packet id. A filter that
stands at several is granted when all of them grant it, at the least they give. What some grant and
others refuse is refused, and taken back where it was granted before the client hears of it.

Source: OASIS MQTT 5.0, 3.2 and 3.8 to 3.11.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from federator.gateway import wire
from federator.gateway.wire.kinds import V5, Kind, MalformedError, Packet, Reason, Version

OPEN_MAX: Final = 1_024
"""Requests of one client that no broker answered yet."""

_REFUSED: Final = 0x80

Ask = tuple[int, bytes]
"""A leg, and a packet for the broker there."""

_LEAST: Final = (
    wire.Property.SESSION_EXPIRY,
    wire.Property.SERVER_KEEP_ALIVE,
    wire.Property.RECEIVE_MAXIMUM,
    wire.Property.MAXIMUM_QOS,
    wire.Property.RETAIN_AVAILABLE,
    wire.Property.MAXIMUM_PACKET_SIZE,
    wire.Property.WILDCARD_SUBSCRIPTION_AVAILABLE,
    wire.Property.SUBSCRIPTION_ID_AVAILABLE,
    wire.Property.SHARED_SUBSCRIPTION_AVAILABLE,
)
"""Limits, of which the narrowest holds; a broker without one sets none."""


class ConnackMerger:
    """The CONNACKs of as many brokers of one client as there are ``legs``, until they are one.

    ``assigned`` is the id of a client that left it to the server.

    Attributes:
        refused: One broker will not have the client, which has been told.
    """

    __slots__ = ("_assigned", "_connacks", "_legs", "_version", "refused")

    def __init__(self, version: Version, legs: int, *, assigned: str = "") -> None:
        self._version = version
        self._legs = legs
        self._assigned = assigned
        self._connacks: dict[int, wire.Connack] = {}
        self.refused = False

    @property
    def complete(self) -> bool:
        """Whether all brokers accepted the client."""
        return not self.refused and len(self._connacks) == self._legs

    @property
    def with_session(self) -> tuple[int, ...]:
        """The legs whose broker has a session of the client."""
        return tuple(leg for leg, each in self._connacks.items() if each.session_present)

    @property
    def torn(self) -> bool:
        """Whether some have a session and others have not."""
        return self.complete and 0 < len(self.with_session) < self._legs

    @property
    def properties(self) -> wire.Properties:
        """What all said together, once they have."""
        every = [self._connacks[leg].properties for leg in sorted(self._connacks)]
        merged = every[0]
        if self._version == V5:
            for name in _LEAST:
                said = [wire.number_in(each, name, -1) for each in every]
                limits = [value for value in said if value >= 0]
                if limits:
                    merged = wire.with_value(merged, name, min(limits))
            if self._assigned:
                name = wire.Property.ASSIGNED_CLIENT_ID
                merged = wire.with_value(merged, name, self._assigned)
        return merged

    def has(self, leg: int) -> bool:
        """Whether the broker of ``leg`` has answered."""
        return leg in self._connacks

    def add(self, leg: int, block: bytes, packet: Packet) -> bytes:
        """Take a broker's CONNACK; return the client's, when it is the last or a refusal.

        Raises:
            MalformedError: It is no CONNACK.
        """
        connack = wire.read_connack(block, packet, self._version)
        self._connacks[leg] = connack
        if connack.reason:
            first, self.refused = not self.refused, True
            return wire.write_connack(connack, self._version) if first else b""
        if not self.complete:
            return b""
        if self.torn:
            no = wire.Connack(session_present=False, reason=Reason.SERVER_UNAVAILABLE)
            return wire.write_connack(no, self._version)
        present = bool(self.with_session)
        return wire.write_connack(wire.Connack(present, 0, self.properties), self._version)


@dataclass(slots=True)
class _Request:
    """A request of the client that is not answered.

    Attributes:
        kind: Of the answer.
        filters: In the client's order.
        codes: To each filter, what the legs that were asked said.
        awaited: Legs that have not answered.
        undoing: What some granted is being taken back.
    """

    packet_id: int
    kind: Kind
    filters: tuple[str, ...]
    codes: list[dict[int, int]]
    awaited: dict[int, tuple[int, ...]]
    properties: wire.Properties = ()
    undoing: bool = False


class RequestMerger:
    """The requests of one client, each until all brokers that it concerns have answered."""

    __slots__ = ("_open", "_version")

    def __init__(self, version: Version) -> None:
        self._version = version
        self._open: list[_Request] = []

    def request(
        self, request: wire.Request, legs_of: Callable[[str], tuple[int, ...]]
    ) -> tuple[list[Ask], bytes]:
        """Tell what to ask of whom, and the answer if nobody is to be asked.

        ``legs_of`` a filter are those where it stands; there are none where it is refused.

        Raises:
            MalformedError: Too many wait for their answer.
        """
        if isinstance(request, wire.Subscribe):
            kind, refused = Kind.SUBACK, Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
            names = tuple(filter for filter, _ in request.filters)
        else:
            kind, refused = Kind.UNSUBACK, Reason.NO_SUBSCRIPTION_EXISTED
            names = request.filters
        legs = tuple(map(legs_of, names))
        codes = [{} if each else {0: int(refused)} for each in legs]
        opened = _Request(request.packet_id, kind, names, codes, _by_leg(legs))
        asks = [(leg, self._part(request, places)) for leg, places in opened.awaited.items()]
        if opened.awaited:
            if len(self._open) >= OPEN_MAX:
                raise MalformedError(f"more than {OPEN_MAX} open requests", Reason.QUOTA_EXCEEDED)
            self._open.append(opened)
            return asks, b""
        return [], self._answer(opened)

    def _part(self, request: wire.Request, places: tuple[int, ...]) -> bytes:
        """The part of ``request`` that one broker is asked for."""
        filters: Any = tuple(request.filters[place] for place in places)  # of either kind
        return wire.write_request(replace(request, filters=filters), self._version)

    def on_answer(self, leg: int, kind: Kind, answer: wire.Answer) -> tuple[list[Ask], bytes]:
        """Take a leg's answer; tell what to ask now, and the client's answer when it is whole."""
        request = self._found(leg, kind, answer.packet_id)
        if request is None:
            return [], b""
        places = request.awaited.pop(leg)
        if not request.undoing:
            request.properties = request.properties or answer.properties
            codes = answer.codes or bytes(len(places))  # UNSUBACK of 3.1.1 has none
            for place, code in zip(places, codes, strict=False):
                request.codes[place][leg] = code
        if request.awaited:
            return [], b""
        asks = [] if request.undoing else self._undo(request)
        if asks:
            return asks, b""
        self._open.remove(request)
        return [], self._answer(request)

    def _found(self, leg: int, kind: Kind, packet_id: int) -> _Request | None:
        for request in self._open:
            awaits = Kind.UNSUBACK if request.undoing else request.kind
            if request.packet_id == packet_id and awaits == kind and leg in request.awaited:
                return request
        return None

    def _undo(self, request: _Request) -> list[Ask]:
        """Take back what some granted and others refused."""
        if request.kind != Kind.SUBACK:
            return []
        back: dict[int, list[int]] = {}
        for place, codes in enumerate(request.codes):
            if max(codes.values(), default=0) >= _REFUSED:
                for leg, code in codes.items():
                    if code < _REFUSED:
                        back.setdefault(leg, []).append(place)
        request.undoing = bool(back)
        request.awaited = {leg: tuple(places) for leg, places in back.items()}
        everything = wire.Unsubscribe(request.packet_id, request.filters)
        return [(leg, self._part(everything, places)) for leg, places in request.awaited.items()]

    def _answer(self, request: _Request) -> bytes:
        merged = bytes(_merged([*codes.values()]) for codes in request.codes)
        answer = wire.Answer(request.packet_id, merged, request.properties)
        return wire.write_answer(request.kind, answer, self._version)


def _by_leg(legs: tuple[tuple[int, ...], ...]) -> dict[int, tuple[int, ...]]:
    """The places of the filters that stand on each leg."""
    places: dict[int, list[int]] = {}
    for place, each in enumerate(legs):
        for leg in each:
            places.setdefault(leg, []).append(place)
    return {leg: tuple(places[leg]) for leg in sorted(places)}


def _merged(codes: list[int]) -> int:
    """One code for what several brokers said to one filter."""
    worst = max(codes, default=0)
    return worst if worst >= _REFUSED else min(codes, default=0)

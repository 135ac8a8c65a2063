"""One answer of several brokers: to a client's CONNECT, SUBSCRIBE and UNSUBSCRIBE.

A session that only some brokers have is invalid: the client would rely on subscriptions that do not
exist. The client is refused once, and the sessions are ended; its next connection begins a new one.

Each broker gets its part of a subscription request under the client's packet id. A filter at
several brokers is granted if all grant it, at the lowest QoS. A filter that some grant and others
refuse is refused, and unsubscribed where it was granted before the client gets the answer.

Source: OASIS MQTT 5.0, 3.2 and 3.8 to 3.11.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from federator.gateway import wire
from federator.gateway.wire.kinds import V5, Kind, MalformedError, Packet, Reason, Version

OPEN_MAX: Final = 1_024
"""Requests of one client that no broker has answered yet."""

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
    """Merges the CONNACKs of one client's brokers, one for each of ``legs``, into one.

    ``assigned`` is the id of a client that left it to the server.

    Attributes:
        refused: One broker refused the client, which got the CONNACK.
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
        """The legs to brokers with a session of the client."""
        return tuple(leg for leg, connack in self._connacks.items() if connack.session_present)

    @property
    def torn(self) -> bool:
        """Whether only some brokers have a session."""
        return self.complete and 0 < len(self.with_session) < self._legs

    @property
    def properties(self) -> wire.Properties:
        """The merged properties, once all brokers have answered."""
        every = [self._connacks[leg].properties for leg in sorted(self._connacks)]
        merged = every[0]
        if self._version == V5:
            for name in _LEAST:
                values = [wire.number_in(properties, name, -1) for properties in every]
                limits = [value for value in values if value >= 0]
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
        """Take a broker's CONNACK; return the client's, if this is the last one or a refusal.

        Raises:
            MalformedError: The packet is no CONNACK.
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
    """An open request of the client.

    Attributes:
        kind: The kind of the answer.
        filters: The filters in the client's order.
        codes: For each filter, the codes of the legs that were asked.
        awaited: The legs that have not answered, and the places of their filters.
        undoing: Partly granted filters are being unsubscribed.
    """

    packet_id: int
    kind: Kind
    filters: tuple[str, ...]
    codes: list[dict[int, int]]
    awaited: dict[int, tuple[int, ...]]
    properties: wire.Properties = ()
    undoing: bool = False


class RequestMerger:
    """The requests of one client, each until all brokers concerned have answered."""

    __slots__ = ("_open", "_version")

    def __init__(self, version: Version) -> None:
        self._version = version
        self._open: list[_Request] = []

    def request(
        self, request: wire.Request, legs_of: Callable[[str], tuple[int, ...]]
    ) -> tuple[list[Ask], bytes]:
        """Return the packets for the legs, and the answer if no leg is to be asked.

        ``legs_of`` returns the legs of a filter; none if the filter is refused.

        Raises:
            MalformedError: Too many requests are open.
        """
        if isinstance(request, wire.Subscribe):
            kind, refused = Kind.SUBACK, Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
            names = tuple(filter for filter, _ in request.filters)
        else:
            kind, refused = Kind.UNSUBACK, Reason.NO_SUBSCRIPTION_EXISTED
            names = request.filters
        legs = tuple(map(legs_of, names))
        codes = [{} if of_filter else {0: int(refused)} for of_filter in legs]
        opened = _Request(request.packet_id, kind, names, codes, _by_leg(legs))
        asks = [(leg, self._part(request, places)) for leg, places in opened.awaited.items()]
        if opened.awaited:
            if len(self._open) >= OPEN_MAX:
                raise MalformedError(f"more than {OPEN_MAX} open requests", Reason.QUOTA_EXCEEDED)
            self._open.append(opened)
            return asks, b""
        return [], self._answer(opened)

    def _part(self, request: wire.Request, places: tuple[int, ...]) -> bytes:
        """The part of ``request`` for one broker."""
        filters: Any = tuple(request.filters[place] for place in places)  # of either kind
        return wire.write_request(replace(request, filters=filters), self._version)

    def on_answer(self, leg: int, kind: Kind, answer: wire.Answer) -> tuple[list[Ask], bytes]:
        """Take a leg's answer; return packets to send now, and the client's answer if complete."""
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
        """Unsubscribe filters that some granted and others refused."""
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
    """The places of each leg's filters."""
    places: dict[int, list[int]] = {}
    for place, of_filter in enumerate(legs):
        for leg in of_filter:
            places.setdefault(leg, []).append(place)
    return {leg: tuple(places[leg]) for leg in sorted(places)}


def _merged(codes: list[int]) -> int:
    """Merge the codes of several brokers for one filter."""
    worst = max(codes, default=0)
    return worst if worst >= _REFUSED else min(codes, default=0)

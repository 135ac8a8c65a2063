"""The subscriptions of one client as granted by its broker, to be repeated at another.

Source: OASIS MQTT 5.0, 3.8 to 3.11.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from federator.gateway import wire
from federator.gateway.wire.kinds import V5, MalformedError, Reason, Version
from federator.protocol.filters import without_share
from federator.protocol.types import Millis

FILTERS_PER_PACKET: Final = 100
FILTER_CHARACTERS_MAX: Final = 4_194_304
"""Characters of all filters of one client; each filter may have 65,535."""

RECEIVE_MAX: Final = 65_535
"""Receive Maximum if none is given."""

_NEVER: Final = 0x20
_REFUSED: Final = 0x80


@dataclass(frozen=True, slots=True)
class Subscription:
    """One filter of a client.

    Attributes:
        options: The byte that follows the filter in SUBSCRIBE.
        identifier: The subscription identifier of version 5; 0 without.
        granted: The QoS that the broker granted.
        since_ms: When it was granted.
    """

    options: int
    identifier: int
    granted: int
    since_ms: Millis


@dataclass(slots=True, eq=False)
class Subscriptions:
    """The filters of one client.

    Attributes:
        filters_max: How many the client may have; more are refused.
        granted: Subscriptions by filter, ``$share/...`` as given.
        changes: How often they changed.
    """

    version: Version
    filters_max: int
    granted: dict[str, Subscription] = field(default_factory=dict)
    changes: int = 0
    _characters: int = 0
    _requests: dict[int, tuple[bytes, wire.Request]] = field(default_factory=dict)
    _asked: int = 0  # filters in ``_requests``
    # our own requests, after a move
    _again: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def restored(self) -> bool:
        """Whether the broker has answered all our repeated subscriptions."""
        return not self._again

    @property
    def busy(self) -> bool:
        """Whether a SUBACK or UNSUBACK is due."""
        return bool(self._requests or self._again)

    @property
    def acknowledged_filters(self) -> list[str]:
        """The filters granted QoS 1 or 2, without shared ones."""
        items = self.granted.items()
        return [f for f, s in items if s.granted and not f.startswith("$share/")]

    @property
    def wants_none_of_its_own(self) -> bool:
        """Whether some subscription has No Local."""
        return any(given.options & wire.NO_LOCAL for given in self.granted.values())

    @property
    def ids(self) -> Iterable[int]:
        """Packet ids in use."""
        return (*self._requests, *self._again)

    @property
    def unanswered(self) -> list[bytes]:
        """The client's own requests that no broker has answered yet."""
        return [packet for packet, _ in self._requests.values()]

    @property
    def asks(self) -> bool:
        """Whether a SUBSCRIBE of the client is unanswered."""
        return any(isinstance(request, wire.Subscribe) for _, request in self._requests.values())

    def ask(self, packet: bytes, request: wire.Request) -> None:
        """Note a request of the client.

        Raises:
            MalformedError: The client has too many filters.
        """
        if isinstance(request, wire.Subscribe):
            new = sum(filter not in self.granted for filter, _ in request.filters)
            if len(self.granted) + self._asked + new > self.filters_max:
                text = f"more than {self.filters_max} subscriptions"
                raise MalformedError(text, Reason.QUOTA_EXCEEDED)
            if self._characters + sum(len(f) for f, _ in request.filters) > FILTER_CHARACTERS_MAX:
                text = f"filters of more than {FILTER_CHARACTERS_MAX} characters"
                raise MalformedError(text, Reason.QUOTA_EXCEEDED)
        self._answered(request.packet_id)  # a repeated id: one answer covers both
        self._requests[request.packet_id] = (packet, request)
        self._asked += len(request.filters)

    def _answered(self, packet_id: int) -> wire.Request | None:
        _, request = self._requests.pop(packet_id, (b"", None))
        self._asked -= len(request.filters) if request is not None else 0
        return request

    def on_suback(self, answer: wire.Answer, now_ms: Millis) -> tuple[str, ...] | None:
        """Take the broker's SUBACK; return the client's filters that are granted.

        ``None``: it answers a request of ours, not of the client.

        Raises:
            MalformedError: The new broker refuses a moved client what another broker granted.
        """
        if answer.packet_id in self._again:
            self._on_again(answer)
            return None
        request = self._answered(answer.packet_id)
        if not isinstance(request, wire.Subscribe):
            return ()
        identifier = wire.number_in(request.properties, wire.Property.SUBSCRIPTION_ID, 0)
        taken: list[str] = []
        for (filter, options), code in zip(request.filters, answer.codes, strict=False):
            if code < _REFUSED:
                former = self.granted.pop(filter, None)
                since_ms = former.since_ms if former else now_ms
                self._characters += 0 if former else len(filter)
                self.granted[filter] = Subscription(options, identifier, code, since_ms)
                taken.append(filter)
        self.changes += bool(taken)
        return tuple(taken)

    def on_unsuback(self, answer: wire.Answer) -> None:
        """Take the broker's UNSUBACK: remove the filters."""
        request = self._answered(answer.packet_id)
        if isinstance(request, wire.Unsubscribe):
            for filter in request.filters:
                if self.granted.pop(filter, None) is not None:
                    self.changes += 1
                    self._characters -= len(filter)

    def again(self, taken: Iterable[int]) -> Iterator[bytes]:
        """Requests that repeat all subscriptions; packet ids in ``taken`` are in use."""
        self._again.clear()
        used = {*taken, *self._requests}
        packet_id = 0
        for identifier, group in groupby(self.granted.items(), lambda item: item[1].identifier):
            members = list(group)
            for at in range(0, len(members), FILTERS_PER_PACKET):
                packet_id += 1
                while packet_id in used:
                    packet_id += 1
                part = members[at : at + FILTERS_PER_PACKET]
                self._again[packet_id] = tuple(filter for filter, _ in part)
                filters = tuple((f, s.options & ~wire.RETAIN_HANDLING | _NEVER) for f, s in part)
                properties: wire.Properties = ()
                if identifier:
                    properties = ((wire.Property.SUBSCRIPTION_ID, identifier),)
                request = wire.Subscribe(packet_id, filters, properties)
                yield wire.write_request(request, self.version)

    def lose(self) -> None:
        """Expect no more answers to our own requests: the broker is gone."""
        self._again.clear()

    def _on_again(self, answer: wire.Answer) -> None:
        filters = self._again.pop(answer.packet_id)
        for filter, code in zip(filters, answer.codes, strict=False):
            former = self.granted.get(filter)
            if former is None:
                continue
            if code >= _REFUSED:
                text = f"the new broker refuses {filter[:100]!r} ({code:#x})"
                raise MalformedError(text, Reason.IMPLEMENTATION_SPECIFIC)
            if code < former.granted:
                text = f"the new broker grants less for {filter[:100]!r}"
                raise MalformedError(text, Reason.QOS_NOT_SUPPORTED)


def plain(filters: Iterable[str]) -> tuple[str, ...]:
    """Filters without their ``$share/...`` prefix, each once."""
    return tuple(dict.fromkeys(without_share(filter) for filter in filters))


def receive_max(properties: wire.Properties, version: Version) -> int:
    """The Receive Maximum of a CONNECT or CONNACK."""
    if version != V5:
        return RECEIVE_MAX
    return wire.number_in(properties, wire.Property.RECEIVE_MAXIMUM, RECEIVE_MAX)

"""One CONNACK for a client of several brokers: what all of them allow.

A session that some brokers have and others have not is none: the client would believe in
subscriptions that are not there. It is refused once, and the remains are ended; the next time it
gets a fresh one.

Source: OASIS MQTT 5.0, section 3.2.
"""

from typing import Final

from federator.gateway.wire import (
    V5,
    Connack,
    Packet,
    Properties,
    Property,
    Reason,
    Version,
    number_in,
    read_connack,
    with_value,
    write_connack,
)

_LEAST: Final = (
    Property.SESSION_EXPIRY,
    Property.SERVER_KEEP_ALIVE,
    Property.RECEIVE_MAXIMUM,
    Property.MAXIMUM_QOS,
    Property.RETAIN_AVAILABLE,
    Property.MAXIMUM_PACKET_SIZE,
    Property.WILDCARD_SUBSCRIPTION_AVAILABLE,
    Property.SUBSCRIPTION_ID_AVAILABLE,
    Property.SHARED_SUBSCRIPTION_AVAILABLE,
)
"""Limits, of which the narrowest holds; a broker without one sets none."""


class Greetings:
    """The CONNACKs of one client's brokers.

    Args:
        version: Of the protocol.
        ways: How many brokers.

    Attributes:
        refused: One will not have the client; it has been told.
    """

    __slots__ = ("_connacks", "_version", "_ways", "refused")

    def __init__(self, version: Version, ways: int) -> None:
        self._version = version
        self._ways = ways
        self._connacks: dict[int, Connack] = {}
        self.refused = False

    @property
    def complete(self) -> bool:
        """Whether all brokers accepted the client."""
        return not self.refused and len(self._connacks) == self._ways

    @property
    def with_session(self) -> tuple[int, ...]:
        """Whose broker has a session of the client."""
        return tuple(way for way, each in self._connacks.items() if each.session_present)

    @property
    def torn(self) -> bool:
        """Whether some have a session and others have not."""
        return self.complete and 0 < len(self.with_session) < self._ways

    def has(self, way: int) -> bool:
        """Whether its broker has answered."""
        return way in self._connacks

    def add(self, way: int, block: bytes, packet: Packet) -> bytes:
        """A broker's CONNACK: the client's, when it is the last or a refusal.

        Raises:
            MalformedError: It is none.
        """
        connack = read_connack(block, packet, self._version)
        self._connacks[way] = connack
        if connack.reason:
            first, self.refused = not self.refused, True
            return write_connack(connack, self._version) if first else b""
        if not self.complete:
            return b""
        if self.torn:
            no = Connack(session_present=False, reason=Reason.SERVER_UNAVAILABLE)
            return write_connack(no, self._version)
        present = bool(self.with_session)
        return write_connack(Connack(present, 0, self._properties()), self._version)

    def _properties(self) -> Properties:
        every = [self._connacks[way].properties for way in sorted(self._connacks)]
        merged = every[0]
        if self._version == V5:
            for name in _LEAST:
                said = [number_in(each, name, -1) for each in every]
                limits = [value for value in said if value >= 0]
                if limits:
                    merged = with_value(merged, name, min(limits))
        return merged

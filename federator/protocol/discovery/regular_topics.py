"""Filters that clients registered themselves on ``$fed/<federation>/new_regular_topic``.

For brokers that log no subscriptions and for clients that prefer to register. The payload is a
filter; the prefix ``- `` withdraws it. A registration expires after ``ttl_ms``, so clients repeat
it.

Source: Spohn 2021, 6 (NEW_REGULAR_TOPIC); docs/protocol.md 9.
"""

from federator.errors import DecodeError
from federator.protocol.discovery.interest import Interest
from federator.protocol.discovery.parameters import DiscoveryParameters
from federator.protocol.filters import may_travel, validate_filter, without_share
from federator.protocol.types import Millis

WITHDRAW = "- "
PAYLOAD_BYTES_MAX = 65_535 + len(WITHDRAW)


class RegularTopics:
    """Registered filters and when they expire."""

    def __init__(self, interest: Interest, parameters: DiscoveryParameters) -> None:
        self._interest = interest
        self._ttl_ms = parameters.registration_ttl_ms
        self._filters_max = parameters.registrations_max
        # Ascending by expiry: each renewal moves to the end, and all have the same lifetime.
        self._expires_at_ms: dict[str, Millis] = {}

    def __len__(self) -> int:
        return len(self._expires_at_ms)

    def next_deadline_ms(self) -> Millis | None:
        """When the next registration expires."""
        return next(iter(self._expires_at_ms.values()), None)

    def on_payload(self, payload: bytes, *, now_ms: Millis) -> None:
        """Register, renew or withdraw a filter.

        Raises:
            DecodeError: The payload names no filter that may travel, or there is no room for it.
        """
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise DecodeError(f"{len(payload)} bytes, at most {PAYLOAD_BYTES_MAX} wanted")
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            raise DecodeError("not UTF-8") from None
        withdraw = text.startswith(WITHDRAW)
        try:
            filter = without_share(validate_filter(text[len(WITHDRAW) :] if withdraw else text))
        except ValueError as error:
            raise DecodeError(str(error)) from error
        if not may_travel(filter):
            raise DecodeError(f"filter {filter[:80]!a}: topics with $ stay on their broker")
        registered = self._expires_at_ms.pop(filter, None) is not None
        if withdraw:
            if registered:
                self._interest.count(filter, -1)
            return
        if not registered:
            if len(self._expires_at_ms) >= self._filters_max:
                raise DecodeError(f"{self._filters_max} filters are registered, no more are taken")
            self._interest.count(filter, 1)
        self._expires_at_ms[filter] = Millis(now_ms + self._ttl_ms)

    def on_deadline(self, *, now_ms: Millis) -> None:
        """End expired registrations."""
        while self._expires_at_ms:
            filter, expires_at_ms = next(iter(self._expires_at_ms.items()))
            if expires_at_ms > now_ms:
                return
            del self._expires_at_ms[filter]
            self._interest.count(filter, -1)

    def remaining_ms(self, *, now_ms: Millis) -> list[tuple[str, int]]:
        """The registrations with the time that each has left."""
        return [(filter, max(0, at - now_ms)) for filter, at in self._expires_at_ms.items()]

    def load(self, remaining: list[tuple[str, int]], *, now_ms: Millis) -> None:
        """Restore registrations as ``remaining_ms`` returned them."""
        for filter, left_ms in sorted(remaining, key=lambda pair: pair[1])[: self._filters_max]:
            left_ms = min(max(0, left_ms), self._ttl_ms)
            self._expires_at_ms[filter] = Millis(now_ms + left_ms)
            self._interest.count(filter, 1)

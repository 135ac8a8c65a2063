"""Clients whose topics belong to several brokers: how the gateway lets them in.

Source: docs/gateway.md, "Topics of certain brokers".
"""

from collections.abc import Sequence
from typing import Final, Protocol

from federator.config import UpstreamSettings
from federator.gateway.attendant import Attendant
from federator.gateway.brokers import Broker
from federator.gateway.front import Front
from federator.gateway.owners import Owners
from federator.gateway.ports import End, Port
from federator.gateway.split import SUFFIX, Split
from federator.gateway.split_ids import Name
from federator.gateway.wire import FROM_CLIENT, Connect, Splitter
from federator.protocol.types import BrokerId, Millis

LEFT_MAX: Final = 4_096
"""Clients whose unfinished QoS 2 deliveries are remembered until they come again."""


class House(Protocol):
    """What the ways need of the gateway."""

    packet_bytes_max: int
    buffer_bytes_max: int

    def now_ms(self) -> Millis:
        """Monotonic time."""

    def evict(self, client_id: str) -> None:
        """Whoever has this name hears that it came again."""

    def attend(
        self, connect: Connect, end: End, splitter: Splitter, *, assigned: bool
    ) -> Attendant:
        """An attendant for one way of a client."""

    def on_left(self, attendant: Attendant, broker: Broker) -> None:
        """The client has nothing to do with ``broker`` any more."""


class Ways:
    """The upstreams of one gateway.

    Args:
        upstreams: Whose topics are whose.
        house: The gateway.

    Attributes:
        count: How many brokers a client has; 1 without upstreams.
    """

    def __init__(self, upstreams: Sequence[UpstreamSettings], house: House) -> None:
        self._brokers = [BrokerId(each.broker) for each in upstreams]
        self._owners = Owners([each.filters for each in upstreams])
        self.count = self._owners.ways
        self._house = house
        self._left: dict[str, dict[Name, int]] = {}

    @property
    def assignments(self) -> list[tuple[str, BrokerId]]:
        """Patterns of names on ways, and their brokers."""
        return [(f"*{SUFFIX}{way}", id) for way, id in enumerate(self._brokers, start=1)]

    def admit(self, connect: Connect, port: Port, splitter: Splitter, *, assigned: bool) -> Front:
        """A client said CONNECT, and may come in."""
        house, client = self._house, connect.client_id
        house.evict(client)
        unreleased = self._left.pop(client, {})
        split = Split(connect, self._owners, unreleased={} if connect.clean else unreleased)
        front = Front(
            port,
            splitter,
            split,
            version=connect.version,
            buffer_bytes_max=house.buffer_bytes_max,
            now_ms=house.now_ms,
            on_torn=self._end_sessions,
            on_over=lambda split: self._remember(connect, split),
        )
        attendants = []
        for way, each in enumerate(split.connects()):
            cut = Splitter(limit=house.packet_bytes_max, firsts=FROM_CLIENT)
            cut.speak(connect.version)
            attendants.append(
                house.attend(each, front.strands[way], cut, assigned=assigned and not way)
            )
        front.start(attendants)
        return front

    def _end_sessions(self, attendants: list[Attendant]) -> None:
        for attendant in attendants:
            if attendant.broker is not None:
                self._house.on_left(attendant, attendant.broker)

    def _remember(self, connect: Connect, split: Split) -> None:
        unreleased = split.unreleased
        if unreleased and connect.session_expiry_s > 0:
            self._left[connect.client_id] = unreleased
            if len(self._left) > LEFT_MAX:
                del self._left[next(iter(self._left))]

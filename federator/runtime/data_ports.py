"""What the data path needs of its surroundings.

Source: design section 3.4.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from federator.protocol.forwarding import FrameRoute, Sends
from federator.protocol.frames import Frame
from federator.protocol.types import BrokerId
from federator.runtime.mqtt_wire import Inbound


class DataLink(Protocol):
    """What the data path needs of a connection to a broker. Methods tell whether it was taken."""

    def write_packets(
        self, parts: Sequence[bytes | memoryview], count: int, *, urgent: bool = False
    ) -> bool:
        """Write a run of ready-made QoS 0 PUBLISH packets; urgent ones wait for no others."""

    def publish_packet(self, packet: bytearray, packet_id_at: int, qos: int) -> bool:
        """Publish a ready-made QoS 1 or 2 packet."""

    @property
    def room(self) -> bool:
        """Whether it can take a good deal more."""

    @property
    def queued_bytes(self) -> int:
        """What waits to be sent."""

    @property
    def urgent_bytes(self) -> int:
        """What of it is urgent."""

    @property
    def idle(self) -> bool:
        """Nothing waits, in the transport neither."""

    @property
    def unacknowledged(self) -> int:
        """QoS 1 and 2 messages that the broker has not acknowledged yet."""


class Datagrams(Protocol):
    """Who carries frames to neighbours past their brokers."""

    def send(self, neighbour: BrokerId, parts: Sequence[bytes | memoryview]) -> bool:
        """Take a frame for a neighbour; ``False``: it goes by the broker."""


class AcknowledgingLink(Protocol):
    """What the data path needs of the connection that publications come from."""

    @property
    def session_number(self) -> int:
        """Names the broker's session."""

    def acknowledge(self, packet_ids: Iterable[tuple[int, int]], *, session_number: int) -> None:
        """Acknowledge publications, as (packet id, QoS)."""


class RetainedFlow(Protocol):
    """What the data path needs to know of retained values: they have versions."""

    def leave(self, run: bytes) -> int:
        """Publications of our clients, some of them retained, leave; the time of their frame."""

    def arrive(self, run: bytes, *, time_us: int, origin: BrokerId) -> bytes:
        """What of ``run`` may be published here; itself when all may as it is."""

    def missed(self, run: bytes) -> None:
        """Some of ``run`` could not be published here after all."""


class Shared(Protocol):
    """Who cares for shared groups that span brokers."""

    def on_publishes(self, chunk: memoryview, publishes: Sequence[Inbound]) -> None:
        """Publications of our clients, frames among them."""

    def on_parcel(self, frame: Frame) -> None:
        """The first copy of a frame for our inbox."""


class Traces(Protocol):
    """Who follows traces."""

    def on_frame(self, frame: Frame, route: FrameRoute | None) -> tuple[Sends, bytes]:
        """A trace came, and would go by ``route``; ``None``: it has been here before.

        Returns:
            Where it goes on to, and its body from here on.

        Raises:
            DecodeError: It is none.
        """

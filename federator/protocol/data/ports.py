"""What the data plane needs from the process around it: connections, and optional features.

A connection says at once whether it accepts what it is given: the next step depends on it. None of
these calls raises, unless it says so.
"""

from collections.abc import Callable, Iterable, MutableSequence, Sequence
from typing import Protocol

from federator.protocol.custody.ports import KnownStamp
from federator.protocol.forwarding.forwarding import FrameRoute, Sends
from federator.protocol.forwarding.frames import Frame
from federator.protocol.forwarding.publications import Inbound, Place
from federator.protocol.types import BrokerId, Millis, Now


class DataLink(Protocol):
    """A connection to a broker. Methods return whether it accepted what they were given."""

    def write_packets(
        self, parts: Sequence[bytes | memoryview], count: int, *, urgent: bool = False
    ) -> bool:
        """Write a run of ready-made QoS 0 PUBLISH packets; urgent ones do not wait for others."""

    def publish_packet(self, packet: bytearray, packet_id_at: int, qos: int) -> bool:
        """Publish a ready-made QoS 1 or 2 packet."""

    def publish_run(self, run: bytes, places: Sequence[Place]) -> int:
        """Publish the QoS 1 and 2 packets at ``places`` of ``run``; return how many it accepted."""

    @property
    def room(self) -> bool:
        """Whether it can take a good deal more."""

    @property
    def urgent_bytes(self) -> int:
        """How many urgent bytes wait to be sent."""

    @property
    def idle(self) -> bool:
        """Whether nothing waits, not even in the transport."""

    @property
    def unacknowledged(self) -> int:
        """QoS 1 and 2 messages that the broker has not acknowledged yet."""

    @property
    def waiting(self) -> int:
        """How many of these were not even sent, because as many as allowed are under way."""


class FrameLink(DataLink, Protocol):
    """A connection that carries frames."""

    @property
    def packet_bytes_max(self) -> int:
        """The longest packet that the broker accepts, as far as it announced."""

    @property
    def packet_bytes_sure(self) -> int:
        """Longer QoS 0 packets should be tried first: the broker may drop them silently."""

    def try_packet(self, packet: bytes, on_too_long: Callable[[], None]) -> bool:
        """Send one QoS 0 PUBLISH packet so that the broker answers, in order with all others.

        ``on_too_long`` is called if the broker refused it for its length; ``packet_bytes_max`` is
        smaller by then.
        """


class Backlog(Protocol):
    """What waits to be sent to one neighbour."""

    @property
    def idle(self) -> bool:
        """Whether nothing waits, not even in the transport."""

    @property
    def urgent_bytes(self) -> int:
        """How many urgent bytes wait."""


class AcknowledgingLink(Protocol):
    """The connection on which our clients' publications arrive."""

    @property
    def session_number(self) -> int:
        """Identifies the broker's session."""

    def acknowledge(self, packet_ids: Iterable[tuple[int, int]], *, session_number: int) -> None:
        """Acknowledge publications, as (packet id, QoS)."""


class RetainedFlow(Protocol):
    """Orders retained values by their versions."""

    def leave(self, run: bytes) -> int:
        """Note our clients' publications, some of them retained; return the time of their frame."""

    def arrive(self, run: bytes, *, time_us: int, origin: BrokerId) -> bytes:
        """What of ``run`` may be published here; ``run`` itself when all of it may."""

    def missed(self, run: bytes) -> None:
        """Some of ``run`` could not be published here after all."""


class Stamps(Protocol):
    """Recognises publications that come by several ways: see ``protocol.leaves.stamps``."""

    def leaving(
        self, chunk: memoryview, publishes: Sequence[Inbound], *, but: str, now_ms: Millis
    ) -> tuple[memoryview, Sequence[Inbound]]:
        """What our broker sent, as it is to be forwarded; frames come on the topic ``but``."""

    def arriving(self, frame: Frame, run: bytes, *, now_ms: Millis, may_bear: bool = True) -> bytes:
        """What of the body of a frame is to be published here."""

    @property
    def counts_in_frames(self) -> bool:
        """Whether arriving publications get stamps: from their frame and their place in it."""

    @property
    def unsaved(self) -> MutableSequence[KnownStamp]:
        """What was published here and is not on disk: to be written once our broker has it."""


class Shared(Protocol):
    """Handles shared groups that span brokers."""

    def on_publishes(self, chunk: memoryview, publishes: Sequence[Inbound]) -> None:
        """Handle publications of our clients; frames may be among them."""

    def on_parcel(self, frame: Frame) -> None:
        """Handle the first copy of a frame for our inbox."""


class Traces(Protocol):
    """Follows traces."""

    def on_frame(self, frame: Frame, route: FrameRoute | None) -> tuple[Sends, bytes]:
        """Handle a trace that would go by ``route``; ``None``: it has been here before.

        Returns:
            Its next hops, and its body from here on.

        Raises:
            DecodeError: It is no trace.
        """


class Plans(Protocol):
    """Follows a steerer's plans."""

    def on_torn(self, tree: bytes, sender: BrokerId, now: Now) -> None:
        """Handle a frame from ``sender`` by the tree with this key, which is torn here."""

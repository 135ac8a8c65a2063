"""What the data plane asks of the process around it: connections, and the features that look in.

A connection says at once whether it takes what it is given: what happens next depends on it. None
of these calls raises, unless it says so.
"""

from collections.abc import Callable, Iterable, MutableSequence, Sequence
from typing import NamedTuple, Protocol

from mqtt5 import PublishPacket

from federator.protocol.forwarding.forwarding import FrameRoute, Sends
from federator.protocol.forwarding.frames import Frame
from federator.protocol.forwarding.publications import Place
from federator.protocol.trust.guard import Guard
from federator.protocol.types import BrokerId, Millis, Now

Inbound = tuple[PublishPacket, int, int]
"""A PUBLISH and its bytes' place in the chunk: ``chunk[start:end]``."""


class DataLink(Protocol):
    """A connection to a broker. Methods tell whether what they were given was taken."""

    def write_packets(
        self, parts: Sequence[bytes | memoryview], count: int, *, urgent: bool = False
    ) -> bool:
        """Write a run of ready-made QoS 0 PUBLISH packets; urgent ones wait for no others."""

    def publish_packet(self, packet: bytearray, packet_id_at: int, qos: int) -> bool:
        """Publish a ready-made QoS 1 or 2 packet."""

    def publish_run(self, run: bytes, places: Sequence[Place]) -> int:
        """Publish the QoS 1 and 2 packets at ``places`` of ``run``; how many were taken."""

    @property
    def room(self) -> bool:
        """Whether it can take a good deal more."""

    @property
    def urgent_bytes(self) -> int:
        """What waits to be sent and is urgent."""

    @property
    def idle(self) -> bool:
        """Nothing waits, in the transport neither."""

    @property
    def unacknowledged(self) -> int:
        """QoS 1 and 2 messages that the broker has not acknowledged yet."""

    @property
    def waiting(self) -> int:
        """Those of them that were not even sent: as many are on their way as may be."""


class FrameLink(DataLink, Protocol):
    """A connection that carries frames."""

    @property
    def packet_bytes_max(self) -> int:
        """The longest packet that the broker takes, as far as it said."""

    @property
    def packet_bytes_sure(self) -> int:
        """Longer QoS 0 packets had better be tried: the broker may drop them without a word."""

    def try_packet(self, packet: bytes, on_too_long: Callable[[], None]) -> bool:
        """Send one QoS 0 PUBLISH packet so that the broker answers, in order with all others.

        ``on_too_long`` is called when the broker did not take it for its length, and
        ``packet_bytes_max`` is less by then.
        """


class Datagrams(Protocol):
    """Who carries frames to neighbours past their brokers."""

    def send(self, neighbour: BrokerId, parts: Sequence[bytes | memoryview]) -> bool:
        """Take a frame for a neighbour; ``False``: it goes by the broker."""


class Seals(Protocol):
    """Who seals frames, and breaks the seals of others."""

    @property
    def guard(self) -> Guard:
        """Knows the neighbours' keys."""

    @property
    def proves(self) -> bool:
        """Whether frames under custody are proven: ours, and those that we take."""

    def open_frame(self, payload: bytes) -> tuple[BrokerId, bytes] | None:
        """Who sealed a frame, and the frame; ``None`` when it was turned away."""


class AcknowledgingLink(Protocol):
    """The connection that our clients' publications come from."""

    @property
    def session_number(self) -> int:
        """Names the broker's session."""

    def acknowledge(self, packet_ids: Iterable[tuple[int, int]], *, session_number: int) -> None:
        """Acknowledge publications, as (packet id, QoS)."""


class RetainedFlow(Protocol):
    """Who orders retained values: they have versions."""

    def leave(self, run: bytes) -> int:
        """Publications of our clients, some of them retained, leave; the time of their frame."""

    def arrive(self, run: bytes, *, time_us: int, origin: BrokerId) -> bytes:
        """What of ``run`` may be published here; itself when all may as it is."""

    def missed(self, run: bytes) -> None:
        """Some of ``run`` could not be published here after all."""


class KnownStamp(NamedTuple):
    """What a book of stamps has of one."""

    digest: int  # 64 bits of it
    by_leaf: bool  # who brought it: a leaf, or the mesh


class Stamps(Protocol):
    """Who knows publications again that come by several ways: see ``protocol.data.stamps``."""

    def leaving(
        self, chunk: memoryview, publishes: Sequence[Inbound], *, but: str, now_ms: Millis
    ) -> tuple[memoryview, Sequence[Inbound]]:
        """What our broker brings, as it goes on; the topic ``but`` is no publication's."""

    def arriving(self, frame: Frame, run: bytes, *, now_ms: Millis, may_bear: bool = True) -> bytes:
        """What of the body of a frame is to be published here."""

    @property
    def counts_in_frames(self) -> bool:
        """Whether stamps are made of what arrives: from its frame, and its place among its like."""

    @property
    def unsaved(self) -> MutableSequence[KnownStamp]:
        """What was published here and is not on disk: to be written once our broker has it."""


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


class Plans(Protocol):
    """Who follows a steerer's plans."""

    def on_torn(self, tree: bytes, sender: BrokerId, now: Now) -> None:
        """A frame came from ``sender`` by the tree with this key, which does not hold here."""

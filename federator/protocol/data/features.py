"""What a data plane has besides, if configured, and its bounds."""

from collections.abc import Callable
from dataclasses import dataclass, field

from federator.protocol.custody.followed import HELD_BYTES_MAX
from federator.protocol.data import ports
from federator.protocol.data.transports import Transports
from federator.protocol.duplicates import DuplicateLog
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.telemetry.frame_events import FrameEventSink
from federator.protocol.trust.guard import Seals
from federator.protocol.types import BrokerId

FRAME_BYTES_MAX = 262_144
HOP_LIMIT = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds of a data plane.

    Attributes:
        frame_bytes_max: Longest body of a frame we make; one longer publication travels alone.
        hop_limit: Links a frame of ours may travel, 1 to 255.
        held_bytes_max: Limit for frames that wait for earlier ones; all may become due at once.
        flows_max: Flows of our clients that are measured; 0: none.
    """

    frame_bytes_max: int = FRAME_BYTES_MAX
    hop_limit: int = HOP_LIMIT
    held_bytes_max: int = HELD_BYTES_MAX
    flows_max: int = 0


@dataclass(kw_only=True, slots=True)
class Features:
    """Options of a data plane, which its parts share.

    Attributes:
        link: Publishes on our broker.
        seals: Seals and opens frames; ``None`` in an open federation.
        members: Only frames of these origins are accepted; ``None``: of any.
        duplicates: The window of frames at QoS 0.
        policies: What may pass which link.
        transports: Carry frames past the brokers.
        to_local_names: Translates a run that arrived into the names of our broker.
        retained: Orders retained values; ``None`` lets them pass as they come.
        stamps: Recognises publications that come by several ways.
        note_arrival: Called with a frame's keys, its packets by their names here, and their number.
        frame_events: Records events, frame by frame.
        on_acknowledged: Called when everything received is in the log, and was acknowledged.
        has_spare_time: Whether processors have, so that nothing is gathered.
    """

    link: ports.DataLink | None = None
    seals: Seals | None = None
    members: frozenset[BrokerId] | None = None
    duplicates: DuplicateLog = field(default_factory=DuplicateLog)
    policies: LinkPolicies = field(default_factory=LinkPolicies)
    transports: Transports = field(default_factory=Transports)
    to_local_names: Callable[[bytes], bytes] = lambda run: run
    retained: ports.RetainedFlow | None = None
    stamps: ports.Stamps | None = None
    note_arrival: Callable[[bytes, bytes, int], None] | None = None
    frame_events: FrameEventSink | None = None
    on_acknowledged: Callable[[], None] = lambda: None
    has_spare_time: Callable[[], bool] = lambda: False

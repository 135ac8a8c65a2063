"""Drives the data plane of one agent: passes it the time, and wakes it up when it is due.

``protocol.data.plane`` decides. There are two timers because a batch is due within a millisecond,
again and again, and custody hardly ever.

Source: docs/ARCHITECTURE.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from federator.protocol.data.plane import DataPlane
from federator.protocol.data.ports import FrameLink
from federator.protocol.effects import FilterRoute, Notice
from federator.protocol.forwarding.forwarding import Sends, TopicRoute
from federator.protocol.forwarding.frames import Frame
from federator.protocol.forwarding.publications import Inbound
from federator.protocol.messages.control import RepairRequest, TraceEcho
from federator.protocol.policy.rules import LinkRules
from federator.protocol.timers import earliest
from federator.protocol.types import BrokerId, Millis, Now
from federator.runtime.custody.stores import CustodyStores
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms, wall_clock_us
from federator.runtime.process.notices import log_notice

if TYPE_CHECKING:
    from federator.runtime.process.fine_timer import FineTimer

GAP_S: Final = 0.0005
"""How long publications wait for others in a rush: ``intake.GAP_MS``, as exactly as we can."""


@dataclass(frozen=True, slots=True)
class CustodyMessenger:
    """Sends custody's messages; satisfies ``protocol.custody.ports.CustodyContext``."""

    ask: Callable[[BrokerId, RepairRequest], None]
    tell: Callable[[Notice], None] = log_notice


@dataclass(eq=False, repr=False)
class DataPath:
    """The data plane of one agent, on the event loop."""

    plane: DataPlane
    stores: CustodyStores
    wall_clock_us: Callable[[], int] = wall_clock_us

    def __post_init__(self) -> None:
        plane = self.plane
        self.forwarder, self.counters, self.flows = plane.forwarder, plane.counters, plane.flows
        self.custody, self.delivery = plane.custody, plane.delivery
        self.by_broker = plane.outgoing.by_broker
        self.delays = plane.delivery.delays
        self.data_topic = plane.data_topic  # where frames come in
        self.marker_topic = plane.delivery.marker_topic  # where our broker retains custody's marker
        # These need neither the time nor a timer.
        self.renew_epoch, self.share = plane.renew_epoch, plane.share
        self.report_torn, self.report_traces = plane.report_torn, plane.report_traces
        self.keep, self.widen, self.follow_rules = plane.keep, plane.widen, plane.follow_rules
        self.share_of_turn = plane.share_of_turn
        self.acknowledge, self.on_data_up = plane.intake.acknowledge, plane.intake.on_local_up
        self.on_marker = plane.custody.destination.on_marker
        self._intake = plane.intake
        self._intake_timer = DeadlineTimer(self._on_time)
        self._gap_timer: FineTimer | None = None  # made in the first rush
        self._custody_timer = DeadlineTimer(self._on_time)
        self._custody_armed_ms: Millis | None = None
        self._on_publishes = plane.on_publishes

    def _now(self) -> Now:
        return Now(monotonic_ms(), self.wall_clock_us())

    def _arm(self) -> None:
        """Set the timers. Runs after every read, so it calls nothing unnecessary."""
        intake_ms, custody_ms = self._intake.due_ms, self.custody.due_ms
        if (moves_ms := self.plane.moves.due_ms) is not None:
            intake_ms = earliest(intake_ms, moves_ms)
        if self._intake.gathers:
            if self._gap_timer is None:
                from federator.runtime.process.fine_timer import FineTimer  # noqa: PLC0415 - ctypes

                self._gap_timer = FineTimer(self.flush)
            self._gap_timer.set(GAP_S)
        elif intake_ms is not None:  # if it was flushed early, this wakes us in vain, but seldom
            self._intake_timer.set(intake_ms)
        if custody_ms != self._custody_armed_ms:
            self._custody_armed_ms = custody_ms
            self._custody_timer.set(custody_ms)

    def _on_time(self) -> None:
        self._custody_armed_ms = None
        self.plane.on_time(self._now())
        self._arm()

    # Called by the control plane

    def reach(
        self,
        neighbour: BrokerId,
        link: FrameLink | None,
        topic: str | None = None,
        *,
        takes_bundles: bool = False,
    ) -> None:
        """Send frames for ``neighbour`` over ``link``; ``None``: it is unreachable.

        ``topic`` replaces the usual topic for frames.
        """
        self.plane.reach(neighbour, link, self._now(), topic, takes_bundles=takes_bundles)
        self._arm()

    def set_route(self, filter: str, route: FilterRoute | None, *, lost: bool = False) -> None:
        """Replace the route of ``filter``; ``None`` forgets it. ``lost``: see ``SetRoute``."""
        self.plane.set_route(filter, route, self._now(), lost=lost)
        self._arm()

    def set_destinations(self, next_hops: Mapping[BrokerId, BrokerId | None]) -> None:
        """Send frames for these brokers to these next hops; see ``SetDestination``."""
        self.plane.set_destinations(next_hops, self._now())
        self._arm()

    def follow_link_rules(self, rules: Mapping[BrokerId, LinkRules], others: LinkRules) -> bool:
        """As ``DataPlane``; what arrived before leaves under the old rules."""
        self.flush()
        return self.plane.follow_link_rules(rules, others)

    def resume(self) -> None:
        """Owe what earlier processes subscribed."""
        self.custody.resume(self._now())
        self._arm()

    def tend(self) -> None:
        """Bound what custody keeps, every second or so; routes may change."""
        self.plane.tend(self._now())
        self._arm()

    def expect(self, filters: Sequence[str], since_us: int) -> None:
        """Clients will come that wanted ``filters`` since ``since_us``; see ``Custodian``."""
        self.custody.expect(filters, self._now(), since_us=since_us)

    def fetch_again(self, filters: Sequence[str], since_us: int) -> None:
        """Clients came that wanted ``filters`` since ``since_us``; see ``Custodian``."""
        self.custody.fetch_again(filters, self._now(), since_us=since_us)
        self._arm()

    def retrieve(
        self, filters: Sequence[str], since_us: int, tell: Callable[[Frame], None]
    ) -> Iterator[Frame] | None:
        """Find what was published on ``filters`` since then; see ``Custodian``."""
        own = self.custody.retrieve(filters, tell, self._now(), since_us=since_us)
        self._arm()
        return own

    def on_request(self, request: RepairRequest) -> None:
        """Answer a repair request, or forward it towards its origin."""
        self.custody.on_request(request, self._now())
        self._arm()

    def leave(self) -> None:
        """Write down the state for the next process."""
        if self._gap_timer is not None:
            self._gap_timer.close()
        self.plane.moves.end(self._now())
        self.custody.destination.save(leaving=True)

    # Called for our broker

    @property
    def started(self) -> bool:
        """Whether it is known what earlier processes delivered: no marker is expected any more."""
        return self.custody.destination.started

    def on_local_up(self) -> None:
        """Our broker is up: its connections stand, and it sent the marker, if it has one."""
        self.custody.destination.on_local_up(self._now().ms)

    def on_data_down(self) -> None:
        self._intake.on_local_down(self._now())
        self._arm()

    def flush(self) -> None:
        """Send publications that wait for more to come."""
        self._intake.flush(self._now())
        self._arm()

    # Data

    def on_publishes(self, chunk: memoryview, publishes: Sequence[Inbound]) -> None:
        """Handle all PUBLISHes of one socket read of the data connection."""
        self._on_publishes(chunk, publishes, Now(monotonic_ms(), self.wall_clock_us()))
        self._arm()

    def on_frames(self, frames: Sequence[bytes], by: BrokerId | None = None) -> None:
        """Handle frames that bypassed our broker; see ``DataPlane``."""
        self.plane.on_frames(frames, self._now(), by)
        self._arm()

    def send_to(
        self, broker: BrokerId, parts: Sequence[bytes | memoryview], size: int, count: int
    ) -> bool:
        """Send a frame to the inbox of one broker, once; return whether there is a way."""
        return self.plane.send_to(broker, parts, size, count, self._now())

    def trace(self, route: TopicRoute, sends: Sends, body: bytes) -> int:
        """Send a trace to ``sends``, next hops of ``route``; return its number."""
        return self.plane.trace(route, sends, body, self._now())

    def on_echo(self, echo: TraceEcho) -> None:
        """Handle the report of a trace of ours."""
        self.plane.moves.on_echo(echo)
        self._arm()

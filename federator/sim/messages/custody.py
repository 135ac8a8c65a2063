"""Custody of one simulated agent: the protocol's own machines between a simulated disk and links.

What decides (who misses what, what to ask for, what to answer, when to repeat, what stays owed) is
``protocol.custody``, the code that the daemon runs. Here is only what ``runtime.custody`` does
around it, without files, sockets and timers of its own.

Source: docs/protocol.md section 11.
"""

from collections.abc import Callable
from typing import Protocol

from federator.protocol.custody import Owed
from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding import Forwarder, FrameRoute
from federator.protocol.frames import KEY_BYTES, LAST_FLAG, TAIL_FLAG, VOID_FLAG, Frame
from federator.protocol.messages import REPAIR_PATH_MAX, RepairRequest
from federator.protocol.sharing import frame_key
from federator.protocol.timers import earliest
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.sim.messages.custody_destination import DestinationOutlet, DestinationSide
from federator.sim.messages.custody_origin import OriginOutlet, OriginSide
from federator.sim.messages.disks import CustodyDisk
from federator.sim.messages.sessions import Message

KEEP_MS = 1_800_000
RETRY_MS = 1_000
"""Until the log is tried again that could not be written."""


class Outlet(OriginOutlet, DestinationOutlet, Protocol):
    """What custody needs of the process around it."""

    @property
    def room(self) -> bool:
        """Our broker can take something."""

    def ask(self, neighbour: BrokerId, request: RepairRequest) -> None:
        """Send a request to a neighbour."""

    def wake(self, at_ms: Millis) -> None:
        """Call ``on_time`` at this instant of our monotonic clock."""


class Custodian:
    """Both sides of custody, and the way that requests and repairs take.

    Args:
        self_id: Our id.
        disk: What earlier lives left.
        epoch: For the log, when a new one must be begun.
        forwarder: Where frames go.
        outlet: The process around.
        now_ms: Our monotonic clock.
        now_us: Our wall clock.
    """

    def __init__(
        self,
        *,
        self_id: BrokerId,
        disk: CustodyDisk,
        epoch: int,
        forwarder: Forwarder,
        outlet: Outlet,
        now_ms: Callable[[], Millis],
        now_us: Callable[[], int],
    ) -> None:
        self.origin = OriginSide(
            self_id=self_id,
            disk=disk,
            log=disk.open(epoch),
            forwarder=forwarder,
            keep_ms=KEEP_MS,
            outlet=outlet,
            now_us=now_us,
        )
        self.destination = DestinationSide(
            disk=disk, keep_ms=KEEP_MS, outlet=outlet, now_us=now_us, started_ms=now_ms()
        )
        self._self_id = self_id
        self._disk = disk
        self._forwarder = forwarder
        self._outlet = outlet
        self._now_ms = now_ms
        self._now_us = now_us
        self._owed = Owed(keep_ms=KEEP_MS)
        self._toward: dict[BrokerId, BrokerId] = {}
        self._armed_ms: Millis | None = None
        self._retry_ms: Millis | None = None

    # Filters

    def resume(self) -> None:
        """Owe what we subscribed in an earlier life."""
        now_ms, now_us = self._now_ms(), self._now_us()
        for filter, until_us in self._disk.owed.items():
            left_us = min(KEEP_MS * 1_000, (until_us or now_us + KEEP_MS * 1_000) - now_us)
            if left_us > 0:
                self._owed.owe(filter, Millis(now_ms + left_us // 1_000))
                self._forwarder.set_route(filter, self._owed.effective(filter, None))
        self.origin.resume(now_ms)
        self._arm(now_ms)

    def on_route(self, filter: str, route: FilterRoute | None, *, lost: bool) -> FilterRoute | None:
        """What the data plane is to do with ``filter``."""
        now_ms = self._now_ms()
        key = frame_key(filter).to_bytes(KEY_BYTES, "big")
        local = route is not None and route.local
        if local != self.destination.receiver.wants(key):
            if local:
                self.destination.want(key, now_ms)
            else:
                self.destination.receiver.unwant(key)
        effective = self._owed.on_route(filter, route, lost=lost, now_ms=now_ms)
        if route is not None and route.next_hops:
            self.origin.tails.hasten(key, now_ms)
            self._arm(now_ms)
        if effective is None or not effective.wanted:
            self._note_owed(filter, None)
        elif lost:
            self._note_owed(filter, self._now_us() + KEEP_MS * 1_000)
        elif filter not in self._owed:
            self._note_owed(filter, 0)
        return effective

    def _note_owed(self, filter: str, until_us: int | None) -> None:
        if self._disk.full_for:
            return
        self._disk.is_new = False
        if until_us is None:
            self._disk.owed.pop(filter, None)
        else:
            self._disk.owed[filter] = until_us

    def on_way_opened(self) -> None:
        """A neighbour is in reach again."""
        now_ms = self._now_ms()
        self.destination.receiver.hasten(now_ms)
        self._arm(now_ms)

    # Our clients' publications

    def take(self, message: Message, packet_id: int) -> None:
        """Take one of QoS 1."""
        now_ms = self._now_ms()
        if not self.origin.take(message, packet_id, now_ms) and self._retry_ms is None:
            self._retry_ms = Millis(now_ms + RETRY_MS)
        self._arm(now_ms)

    # Frames and requests

    def on_frame(self, frame: Frame, local: tuple[int, ...], *, first: bool) -> None:
        """A frame under custody, or a tail, of another origin arrived."""
        if first:
            self._toward[frame.origin] = frame.sender
        if local:
            if frame.flags & TAIL_FLAG:
                self.destination.on_tail(frame, local, self._now_ms())
            else:
                self.destination.arrive(frame, local, self._now_ms(), room=self._outlet.room)
        self._finish()

    def on_repair(self, frame: Frame) -> None:
        """A repair arrived: for us, or to be passed on."""
        now_ms = self._now_ms()
        if frame.route:
            following, *rest = frame.route
            frame.route = tuple(rest)
            frame.hops += 1
            if frame.hops < frame.hop_limit:
                self._outlet.send_repair(following, frame)
            return
        if frame.flags & VOID_FLAG:
            self.destination.on_void(frame, now_ms)
        else:
            route: FrameRoute = self._forwarder.route_frame(
                frame.keys, frame.mask, sender=frame.sender, origin=frame.origin
            )
            if route.local:
                self.destination.arrive(frame, route.local, now_ms, room=self._outlet.room)
        if frame.flags & LAST_FLAG:
            self.destination.receiver.answered(frame.origin, now_ms=now_ms)
        self._finish()

    def on_request(self, request: RepairRequest) -> None:
        """Somebody missed something: answer, or pass it on."""
        if request.origin == self._self_id:
            self.origin.on_request(request)
            return
        following = self._toward.get(request.origin)
        if following is None or len(request.path) >= REPAIR_PATH_MAX:
            return
        if self._self_id in request.path or following in request.path:
            return
        path = (*request.path, self._self_id)
        passed = RepairRequest(request.origin, request.epoch, path, request.chains)
        self._outlet.ask(following, passed)

    # Time

    def on_time(self) -> None:
        """Ask, repeat, try the log again."""
        now_ms = self._now_ms()
        self._armed_ms = None
        for ask in self.destination.receiver.asks(now_ms):
            neighbour = self._toward.get(ask.origin)
            if neighbour is not None:
                path = (self._self_id,)
                request = RepairRequest(ask.origin, Epoch(ask.epoch), path, ask.chains)
                self._outlet.ask(neighbour, request)
        self.origin.send_tails(now_ms)
        if self._retry_ms is not None and now_ms >= self._retry_ms:
            retry = not self.origin.flush(now_ms)
            self._retry_ms = Millis(now_ms + RETRY_MS) if retry else None
        self._arm(now_ms)

    def tend(self) -> list[tuple[str, FilterRoute | None]]:
        """Every second or so: bound everything; filters that are no longer owed."""
        now_ms = self._now_ms()
        self.destination.receiver.expire(now_ms)
        self.destination.save()
        ended = self._owed.expire(now_ms)
        for filter, route in ended:
            self._note_owed(filter, 0 if route is not None and route.wanted else None)
        return ended

    def _finish(self) -> None:
        self.destination.flush()
        self._arm(self._now_ms())

    def _arm(self, now_ms: Millis) -> None:
        due_ms = earliest(
            self.destination.receiver.next_deadline_ms(),
            self.origin.tails.next_deadline_ms(),
            self._retry_ms,
        )
        if due_ms is not None and (self._armed_ms is None or due_ms < self._armed_ms):
            self._armed_ms = Millis(max(due_ms, now_ms))
            self._outlet.wake(self._armed_ms)

"""Custody of one agent, both sides of it, and the way that requests and repairs take.

What is missing is asked for along the way that the origin's frames came: every agent remembers the
neighbour that brought the newest one. The request collects the brokers it passes, and the repairs
go back through them.

Source: docs/protocol.md section 11.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from federator.protocol.custody.destination import Destination, DestinationOutlet, Journal
from federator.protocol.custody.disk_trouble import DiskTrouble
from federator.protocol.custody.origin import Gathered, Log, Origin, OriginOutlet
from federator.protocol.custody.owed import Owed
from federator.protocol.custody.receiver import HELD_BYTES_MAX, Receiver
from federator.protocol.effects import FilterRoute, Notice
from federator.protocol.forwarding import Forwarder
from federator.protocol.frames import LAST_FLAG, TAIL_FLAG, VOID_FLAG, Frame
from federator.protocol.messages import REPAIR_PATH_MAX, RepairRequest
from federator.protocol.timers import earliest
from federator.protocol.types import BrokerId, Epoch, Millis

ORIGINS_MAX = 4_096


class OwedList(Protocol):
    """The filters that stay wanted, on disk. Both methods may raise ``OSError``."""

    def load(self) -> Mapping[str, int]:
        """Until when each is owed, in microseconds since 1970; 0: it is wanted now."""

    def note(self, filter_: str, until_us: int) -> bool:
        """List ``filter_``; ``False`` when the list is full."""

    def forget(self, filter_: str) -> None:
        """Take it off the list."""


class Stores(Protocol):
    """What custody keeps on disk, and how long."""

    @property
    def log(self) -> Log:
        """What we are the origin of."""

    @property
    def journal(self) -> Journal:
        """What we delivered."""

    @property
    def owed(self) -> OwedList:
        """Which filters stay wanted."""

    @property
    def keep_s(self) -> int:
        """How long all of this is worth anything."""


class Outlet(OriginOutlet, DestinationOutlet, Protocol):
    """What custody needs of the process around it."""

    @property
    def room(self) -> bool:
        """Our broker can take a good deal more."""

    def ask(self, neighbour: BrokerId, request: RepairRequest) -> None:
        """Send a request to a neighbour."""

    def wake(self, at_ms: Millis) -> None:
        """Call ``on_time`` at this instant of our monotonic clock; earlier wishes are void."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The two clocks of a process: monotonic, and microseconds since 1970."""

    now_ms: Callable[[], Millis]
    wall_clock_us: Callable[[], int]


class Custodian:
    """Both sides of custody.

    Args:
        self_id: Our id.
        stores: What is kept on disk.
        outlet: The process around.
        forwarder: Where frames go.
        hop_limit: Links that frames may travel.
        clocks: Of the process.
        held_bytes_max: What waits for earlier frames, at most; all of it may come loose at once.

    Attributes:
        origin: Our side as an origin.
        destination: Our side as a destination.
        trouble: Of the list of owed filters.
    """

    def __init__(
        self,
        *,
        self_id: BrokerId,
        stores: Stores,
        outlet: Outlet,
        forwarder: Forwarder,
        hop_limit: int,
        clocks: Clocks,
        held_bytes_max: int = HELD_BYTES_MAX,
    ) -> None:
        keep_ms = stores.keep_s * 1_000
        self.origin = Origin(
            self_id=self_id,
            log=stores.log,
            outlet=outlet,
            forwarder=forwarder,
            hop_limit=hop_limit,
            keep_ms=keep_ms,
            wall_clock_us=clocks.wall_clock_us,
        )
        self.destination = Destination(
            receiver=Receiver(keep_ms=keep_ms, held_bytes_max=held_bytes_max),
            journal=stores.journal,
            outlet=outlet,
            wall_clock_us=clocks.wall_clock_us,
            now_ms=clocks.now_ms(),
        )
        self._self_id = self_id
        self._outlet = outlet
        self._forwarder = forwarder
        self._owed = Owed(keep_ms=keep_ms)
        self._owed_list = stores.owed
        self._shared: frozenset[str] = frozenset()
        self._wall_clock_us = clocks.wall_clock_us
        self._now_ms = clocks.now_ms
        self._toward: OrderedDict[BrokerId, BrokerId] = OrderedDict()
        self.trouble = DiskTrouble(Notice("custody.owed_failed", "error"), outlet.tell)
        self._armed_ms: Millis | None = None
        self._own_again: list[int] = []  # numbers of our own frames to be delivered here, too

    @property
    def owed(self) -> int:
        """Filters that stay wanted although nobody in reach wants them."""
        return len(self._owed)

    # Filters

    def resume(self) -> None:
        """Owe what we subscribed in an earlier life."""
        now_ms = self._now_ms()
        now_us = self._wall_clock_us()
        keep_us = self._owed.keep_ms * 1_000
        for filter, until_us in self._owed_list.load().items():
            left_us = min(keep_us, (until_us or now_us + keep_us) - now_us)
            if left_us > 0:
                self._owed.owe(filter, Millis(now_ms + left_us // 1_000))
                self._forwarder.set_route(filter, self._owed.effective(filter, None))
        self.origin.resume(now_ms)
        self._arm(now_ms)

    def on_route(self, filter: str, route: FilterRoute | None, *, lost: bool) -> FilterRoute | None:
        """What the data plane is to do with ``filter``."""
        now_ms = self._now_ms()
        key = self._forwarder.key(filter)
        local = route is not None and route.local
        if local != self.destination.receiver.wants(key):
            if local:
                self.destination.want(key, now_ms)
            else:
                self.destination.unwant(key)
        effective = self._owed.on_route(filter, route, lost=lost, now_ms=now_ms)
        if route is not None and (route.next_hops or route.destinations):
            self.origin.tails.hasten(key, now_ms)
            self._arm(now_ms)
        if effective is None or not effective.wanted:
            self._note_owed(filter, 0 if filter in self._shared else None)
        elif lost:
            self._note_owed(filter, self._wall_clock_us() + self._owed.keep_ms * 1_000)
        elif filter not in self._owed:
            self._note_owed(filter, 0)
        return effective

    def on_destinations_moved(self, brokers: AbstractSet[BrokerId]) -> None:
        """New ways lead to these destinations; what went by the old ones may be lost."""
        concerned = {broker for broker in brokers if self._forwarder.is_destination(broker)}
        if concerned:
            now_ms = self._now_ms()
            self.origin.on_destinations_moved(concerned, now_ms)
            self._arm(now_ms)

    def expect(self, filters: Sequence[str], *, since_us: int) -> None:
        """Clients will come that wanted ``filters`` since ``since_us``, our wall clock: of those
        that nobody here wants yet, what was published since then is asked for.
        """
        self.destination.expect([self._forwarder.key(filter) for filter in filters], since_us)

    def fetch_again(self, filters: Sequence[str], *, since_us: int) -> None:
        """They came: what was delivered here since then is delivered again, from others' logs and
        from ours.
        """
        now_ms = self._now_ms()
        keys = [self._forwarder.key(filter) for filter in filters]
        self.destination.fetch_again(keys, since_us, now_ms)
        self._own_again = sorted({*self._own_again, *self.origin.made_since(keys, since_us)})
        self._deliver_own_again()
        self._arm(now_ms)

    def _deliver_own_again(self) -> None:
        """Publish what we are the origin of once more, as far as our broker has room."""
        waiting = self._own_again
        done = 0
        while done < len(waiting) and self._outlet.room:
            frame = self.origin.frame_again(waiting[done])
            if frame is not None and frame.publications:
                self._outlet.deliver(frame)
            done += 1
        del waiting[:done]

    def share(self, filters: frozenset[str]) -> None:
        """These are subscribed besides, for groups: write down that they are, or no more."""
        before, self._shared = self._shared, filters
        for filter in sorted(filters - before):
            self._note_owed(filter, 0)
        for filter in sorted(before - filters):
            if not self._is_wanted(filter):
                self._note_owed(filter, None)

    def _is_wanted(self, filter: str) -> bool:
        route = self._forwarder.route_of(filter)
        return route is not None and route.wanted

    def _note_owed(self, filter: str, until_us: int | None) -> None:
        """Write down until when ``filter`` is owed; 0: it is wanted now; ``None``: no more."""
        try:
            if until_us is None:
                self._owed_list.forget(filter)
            else:
                self._owed_list.note(filter, until_us)
        except OSError as error:
            self.trouble.on_error(error, self._now_ms())

    def on_local_up(self) -> None:
        """Our broker is up: its connections stand, and it has told us the marker, if it has one."""
        self.destination.on_local_up(self._now_ms())

    def leave(self) -> None:
        """We go: write down what a later life should know."""
        self.destination.save(self._now_ms(), leaving=True)

    def on_way_opened(self) -> None:
        """A neighbour is in reach again: what is missing may be to be had there."""
        now_ms = self._now_ms()
        self.destination.receiver.hasten(now_ms)
        self._arm(now_ms)

    # Frames and requests

    def take(self, batches: Sequence[Gathered]) -> bool:
        """Log and send what our clients published; ``False``: try again later."""
        return self.origin.take(batches, self._now_ms())

    def on_frame(self, frame: Frame, local: tuple[int, ...], *, first: bool) -> None:
        """A frame under custody, or a tail, of another origin arrived.

        Args:
            frame: The frame.
            local: Which of its filters our clients subscribe to, by position.
            first: No copy of it came before.
        """
        if first:
            self._remember_way(frame.origin, frame.sender)
        if not local:
            return
        now_ms = self._now_ms()
        if frame.flags & TAIL_FLAG:
            self.destination.on_tail(frame, local, now_ms)
        else:
            self.destination.arrive(frame, local, now_ms, room=self._outlet.room)

    def on_repair(self, frame: Frame) -> None:
        """A repair arrived: for us, or to be passed on."""
        if frame.route:
            following, *rest = frame.route
            frame.route = tuple(rest)
            frame.hops += 1
            if frame.hops < frame.hop_limit:
                self._outlet.send_repair(following, frame)
            return
        now_ms = self._now_ms()
        if frame.flags & VOID_FLAG:
            self.destination.on_void(frame, now_ms)
        else:
            local = self._forwarder.route_frame(
                frame.keys, frame.mask, sender=frame.sender, origin=frame.origin
            ).local
            if local:
                self.destination.arrive(frame, local, now_ms, room=self._outlet.room)
        if frame.flags & LAST_FLAG:
            self.destination.receiver.answered(frame.origin, now_ms=now_ms)
            self.destination.recall.answered(frame.origin, now_ms=now_ms)

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
        self._outlet.ask(
            following, RepairRequest(request.origin, request.epoch, path, request.chains)
        )

    def finish(self) -> None:
        """End a read: publish what is due, and wake up when there is something to do."""
        now_ms = self._now_ms()
        self.destination.flush(now_ms)
        if self._own_again:
            self._deliver_own_again()
        self._arm(now_ms)

    def tend(self) -> list[tuple[str, FilterRoute | None]]:
        """Every second or so: bound everything; return filters that are no longer owed."""
        now_ms = self._now_ms()
        self._deliver_own_again()
        self.origin.log.expire()
        self.destination.receiver.expire(now_ms)
        self.destination.save(now_ms)
        ended = self._owed.expire(now_ms)
        for filter, route in ended:
            wanted = filter in self._shared or (route is not None and route.wanted)
            self._note_owed(filter, 0 if wanted else None)
        return ended

    def on_time(self) -> None:
        """Ask for what is missing, and repeat what may be missed."""
        self._armed_ms = None
        now_ms = self._now_ms()
        asks = self.destination.receiver.asks(now_ms) + self.destination.recall.asks(now_ms)
        for ask in asks:
            neighbour = self._toward.get(ask.origin)
            if neighbour is not None:
                path = (self._self_id,)
                request = RepairRequest(ask.origin, Epoch(ask.epoch), path, ask.chains)
                self._outlet.ask(neighbour, request)
        self.origin.send_tails(now_ms)
        self._arm(now_ms)

    def _remember_way(self, origin: BrokerId, sender: BrokerId) -> None:
        if self._toward.get(origin) != sender:
            self._toward[origin] = sender
            if len(self._toward) > ORIGINS_MAX:
                self._toward.popitem(last=False)

    def _arm(self, now_ms: Millis) -> None:
        due_ms = earliest(
            self.destination.receiver.next_deadline_ms(),
            self.destination.recall.next_deadline_ms(),
            self.origin.tails.next_deadline_ms(),
        )
        if due_ms is not None and (self._armed_ms is None or due_ms < self._armed_ms):
            self._armed_ms = due_ms
            self._outlet.wake(Millis(max(due_ms, now_ms)))

"""Custody of one agent, both sides of it, and the way that requests and repairs take.

What is missing is asked for along the way that the origin's frames came: every agent remembers the
neighbour that brought the newest one. The request collects the brokers it passes, and the repairs
go back through them.

Source: docs/protocol.md section 11.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import structlog

from federator.protocol.custody import Owed, Receiver
from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding import Forwarder, FrameRoute, Sends
from federator.protocol.frames import KEY_BYTES, LAST_FLAG, TAIL_FLAG, VOID_FLAG, Frame
from federator.protocol.messages import REPAIR_PATH_MAX, RepairRequest
from federator.protocol.repeats import Repeats
from federator.protocol.sharing import frame_key
from federator.protocol.timers import earliest
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.runtime.custody_destination import DestinationCustody, MarkedBroker
from federator.runtime.custody_log import CustodyLog
from federator.runtime.custody_origin import OriginCustody
from federator.runtime.delivery_journal import DeliveryJournal
from federator.runtime.durable import FsyncPolicy
from federator.runtime.owed_file import OwedFile

ORIGINS_MAX = 4_096
REPAIR_BACKLOG_BYTES_MAX = 262_144
"""Repairs wait until a connection has less of them to send than this."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CustodyStores:
    """What custody keeps on disk, and how long."""

    log: CustodyLog
    journal: DeliveryJournal
    owed: OwedFile
    keep_s: int

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        keep_s: int = 1_800,
        bytes_max: int = 268_435_456,
        fsync: FsyncPolicy = "never",
    ) -> Self:
        """Open, or make, what is in ``folder``.

        Raises:
            ConfigError: The folder cannot be used.
        """
        return cls(
            CustodyLog(folder / "log", bytes_max=bytes_max, age_max_s=keep_s, fsync=fsync),
            DeliveryJournal(folder),
            OwedFile(folder),
            keep_s,
        )

    def close(self) -> None:
        """Write down what is not written yet."""
        self.log.close()
        self.journal.close()
        self.owed.close()


class Broker(MarkedBroker, Protocol):
    """What custody needs of the connection to our broker."""

    @property
    def room(self) -> bool:
        """Whether it can take a good deal more."""


class Carrier(Protocol):
    """What custody needs of the data path."""

    def broker(self) -> Broker | None:
        """The connection to our broker."""

    def send_copies(self, frame: Frame, sends: Sends, body: bytes) -> int:
        """Send copies of a frame of ours to next hops."""

    def send_repair(self, neighbour: BrokerId, frame: Frame) -> bool:
        """Send a repair to a neighbour, unless many wait to be sent there already."""

    def deliver(self, frame: Frame) -> None:
        """Publish a frame on our broker."""

    def number(self) -> tuple[Epoch, int]:
        """Epoch and number for a frame that is not under custody."""


class Custody:
    """Both sides of custody.

    Args:
        carrier: Sends and delivers.
        stores: What is kept on disk.
        self_id: Our id.
        federation: The federation's name.
        forwarder: Where frames go.
        hop_limit: Links that frames may travel.
        wall_clock_us: Microseconds since 1970.

    Attributes:
        ask: Sends a request to a neighbour.
        origin: Our side as an origin.
        destination: Our side as a destination.
    """

    def __init__(
        self,
        carrier: Carrier,
        stores: CustodyStores,
        *,
        self_id: BrokerId,
        federation: str,
        forwarder: Forwarder,
        hop_limit: int,
        wall_clock_us: Callable[[], int],
    ) -> None:
        self.ask: Callable[[BrokerId, RepairRequest], None] = lambda neighbour, request: None
        keep_ms = stores.keep_s * 1_000
        self.origin = OriginCustody(
            self_id=self_id,
            log=stores.log,
            forwarder=forwarder,
            hop_limit=hop_limit,
            keep_ms=keep_ms,
            send=carrier.send_copies,
            send_repair=carrier.send_repair,
            wall_clock_us=wall_clock_us,
        )
        self.destination = DestinationCustody(
            receiver=Receiver(keep_ms=keep_ms),
            journal=stores.journal,
            marker_topic=f"$fed/{federation}/delivered/{self_id}",
            publish=carrier.deliver,
            broker=carrier.broker,
            wall_clock_us=wall_clock_us,
        )
        self._carrier = carrier
        self._self_id = self_id
        self._forwarder = forwarder
        self._owed = Owed(keep_ms=keep_ms)
        self._owed_file = stores.owed
        self._shared: frozenset[str] = frozenset()
        self._wall_clock_us = wall_clock_us
        self._toward: OrderedDict[BrokerId, BrokerId] = OrderedDict()
        self._complaints: Repeats[str] = Repeats(gap_ms=Millis(60_000), keys_max=1)
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms: Millis | None = None

    def counts(self) -> dict[str, int]:
        """What operators see of custody; names as in the table of metrics, after ``custody_``."""
        log, receiver, origin = self.origin.log, self.destination.receiver, self.origin
        return {
            "log_bytes": log.bytes,
            "log_records": log.records,
            "dropped_by_age": log.dropped_by_age,
            "dropped_for_room": log.dropped_for_room,
            "repairs": origin.repairs,
            "failures": origin.failures + self.destination.failures,
            "owed": len(self._owed),
            "chains": len(receiver),
            "gaps": receiver.gaps,
            "held_bytes": receiver.held_bytes,
            "asked": receiver.asked,
            "duplicates": receiver.duplicates,
            "gone": receiver.voids,
        }

    # Filters

    def resume(self) -> list[str]:
        """Owe what we subscribed in an earlier life; return these filters."""
        now_ms = self.now_ms()
        now_us = self._wall_clock_us()
        keep_us = self._owed.keep_ms * 1_000
        resumed = []
        for filter, until_us in self._owed_file.load().items():
            left_us = min(keep_us, (until_us or now_us + keep_us) - now_us)
            if left_us > 0:
                self._owed.owe(filter, Millis(now_ms + left_us // 1_000))
                self._forwarder.set_route(filter, self._owed.effective(filter, None))
                resumed.append(filter)
        self.origin.resume(now_ms)
        self._arm(now_ms)
        return resumed

    def on_route(self, filter: str, route: FilterRoute | None, *, lost: bool) -> FilterRoute | None:
        """What the data plane is to do with ``filter``."""
        now_ms = self.now_ms()
        key = frame_key(filter).to_bytes(KEY_BYTES, "big")
        local = route is not None and route.local
        if local != self.destination.receiver.wants(key):
            if local:
                self.destination.want(key)
            else:
                self.destination.unwant(key)
        effective = self._owed.on_route(filter, route, lost=lost, now_ms=now_ms)
        if route is not None and route.next_hops:
            self.origin.tails.hasten(key, now_ms)
            self._arm(now_ms)
        if effective is None or not effective.wanted:
            self._note_owed(filter, 0 if filter in self._shared else None)
        elif lost:
            self._note_owed(filter, self._wall_clock_us() + self._owed.keep_ms * 1_000)
        elif filter not in self._owed:
            self._note_owed(filter, 0)
        return effective

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
                self._owed_file.forget(filter)
            else:
                self._owed_file.note(filter, until_us)
        except OSError as error:
            if self._complaints.allow("owed", self.now_ms()):
                _log.error("custody.owed_failed", reason=error.strerror or str(error))

    def on_way_opened(self) -> None:
        """A neighbour is in reach again: what is missing may be to be had there."""
        now_ms = self.now_ms()
        self.destination.receiver.hasten(now_ms)
        self._arm(now_ms)

    # Frames and requests

    def on_frame(self, frame: Frame, route: FrameRoute, *, first: bool) -> None:
        """A frame under custody, or a tail, of another origin arrived."""
        if first:
            self._remember_way(frame.origin, frame.sender)
        if not route.local:
            return
        now_ms = self.now_ms()
        if frame.flags & TAIL_FLAG:
            self.destination.on_tail(frame, route.local, now_ms)
        else:
            self.destination.arrive(frame, route.local, now_ms, room=self._room())

    def on_repair(self, frame: Frame) -> None:
        """A repair arrived: for us, or to be passed on."""
        if frame.route:
            following, *rest = frame.route
            frame.route = tuple(rest)
            frame.hops += 1
            if frame.hops < frame.hop_limit:
                self._carrier.send_repair(following, frame)
            return
        now_ms = self.now_ms()
        if frame.flags & VOID_FLAG:
            self.destination.on_void(frame, now_ms)
        else:
            local = self._forwarder.route_frame(
                frame.keys, frame.mask, sender=frame.sender, origin=frame.origin
            ).local
            if local:
                self.destination.arrive(frame, local, now_ms, room=self._room())
        if frame.flags & LAST_FLAG:
            self.destination.receiver.answered(frame.origin, now_ms=now_ms)

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
        self.ask(following, RepairRequest(request.origin, request.epoch, path, request.chains))

    def finish(self) -> None:
        """End a read: publish what is due, and wake up when there is something to do."""
        self.destination.flush()
        self._arm(self.now_ms())

    def tend(self) -> list[tuple[str, FilterRoute | None]]:
        """Every second or so: bound everything; return filters that are no longer owed."""
        now_ms = self.now_ms()
        self.origin.log.expire()
        self.destination.receiver.expire(now_ms)
        self.destination.save()
        ended = self._owed.expire(now_ms)
        for filter, route in ended:
            wanted = filter in self._shared or (route is not None and route.wanted)
            self._note_owed(filter, 0 if wanted else None)
        return ended

    def now_ms(self) -> Millis:
        """Our monotonic clock."""
        return Millis(int(time.monotonic() * 1_000))

    def _room(self) -> bool:
        broker = self._carrier.broker()
        return broker is not None and broker.room

    def _remember_way(self, origin: BrokerId, sender: BrokerId) -> None:
        if self._toward.get(origin) != sender:
            self._toward[origin] = sender
            if len(self._toward) > ORIGINS_MAX:
                self._toward.popitem(last=False)

    def _arm(self, now_ms: Millis) -> None:
        due_ms = earliest(
            self.destination.receiver.next_deadline_ms(), self.origin.tails.next_deadline_ms()
        )
        if due_ms is None or (self._armed_ms is not None and self._armed_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ms = due_ms
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0, due_ms - now_ms) / 1_000, self._on_time)

    def _on_time(self) -> None:
        self._timer = self._armed_ms = None
        now_ms = self.now_ms()
        for ask in self.destination.receiver.asks(now_ms):
            neighbour = self._toward.get(ask.origin)
            if neighbour is not None:
                path = (self._self_id,)
                self.ask(neighbour, RepairRequest(ask.origin, Epoch(ask.epoch), path, ask.chains))
        self.origin.send_tails(now_ms, self._carrier.number)
        self._arm(now_ms)

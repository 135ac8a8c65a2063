"""Custody of what a broker's own clients publish, as the runtime does it: log, acknowledge, send.

What is in the log is ours, and only then is the broker told so. When the log cannot be written,
publications wait unacknowledged, and the broker soon sends no more.

Source: docs/protocol.md section 11; ``runtime.custody_origin`` with a simulated disk.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from federator.protocol.custody import ArchivedFrame, Tails, answer
from federator.protocol.forwarding import Forwarder, Sends, TopicRoute
from federator.protocol.frames import (
    CUSTODY_FLAG,
    KEY_BYTES,
    LAST_FLAG,
    REPAIR_FLAG,
    TAIL_FLAG,
    VOID_FLAG,
    Frame,
)
from federator.protocol.messages import RepairRequest
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.sim.data import HOP_LIMIT, packet_of
from federator.sim.messages.disks import CustodyDisk, DiskFullError, FrameLog, KeptFrame, keys_in
from federator.sim.messages.sessions import Message

REDELIVERED_MAX = 2_000


class OriginOutlet(Protocol):
    """What the origin's side needs of the process around it."""

    def send(self, frame: Frame, sends: Sends) -> None:
        """Send copies of a frame of ours to next hops."""

    def send_repair(self, neighbour: BrokerId, frame: Frame) -> bool:
        """Send a repair to a neighbour; whether it was taken."""

    def acknowledge(self, taken: list[tuple[int, int]]) -> None:
        """Tell our broker that it need not keep publications: (packet id, number)."""

    def number(self) -> tuple[Epoch, int]:
        """Epoch and number for a frame that is not under custody."""

    def too_old(self, numbers: list[int]) -> None:
        """The log had no room any more for these publications."""

    def step(self) -> None:
        """One more thing is done that a crash may come after."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A publication that is not in the log yet."""

    route: TopicRoute
    message: Message
    packet_id: int


class OriginSide:
    """The frames that one agent is the origin of.

    Args:
        self_id: Our id.
        disk: Where they are kept.
        log: The log on it.
        forwarder: Where they go.
        keep_ms: How long heads are repeated.
        outlet: The process around.
        now_us: Our wall clock.

    Attributes:
        waiting: What could not be logged yet, in order.
    """

    def __init__(
        self,
        *,
        self_id: BrokerId,
        disk: CustodyDisk,
        log: FrameLog,
        forwarder: Forwarder,
        keep_ms: int,
        outlet: OriginOutlet,
        now_us: Callable[[], int],
    ) -> None:
        self.log = log
        self.tails = Tails(keep_ms=keep_ms)
        self.waiting: list[Taken] = []
        self._self_id = self_id
        self._disk = disk
        self._forwarder = forwarder
        self._outlet = outlet
        self._now_us = now_us
        self._unacknowledged: list[tuple[int, int]] = []
        self._redelivered: dict[int, int] = {}

    def resume(self, now_ms: Millis) -> None:
        """Repeat the heads of the chains of an earlier life."""
        for key, head in self.log.chains():
            self.tails.made(key, head, now_ms)

    # Our clients' publications

    def on_local_up(self, *, session_present: bool) -> None:
        """With its session, the broker sends again what it holds unacknowledged."""
        self._redelivered.clear()
        if session_present:
            for kept in self.log.recent(REDELIVERED_MAX):
                for packet_id, number in zip(kept.packet_ids, kept.numbers, strict=True):
                    self._redelivered.setdefault(packet_id, number)

    def on_local_down(self, now_ms: Millis) -> None:
        """The broker is gone: log what we have, forget the rest. It comes again."""
        self.flush(now_ms)
        self.waiting.clear()
        self._unacknowledged.clear()

    def take(self, message: Message, packet_id: int, now_ms: Millis) -> bool:
        """Take a publication; ``False`` when it could not be logged: try again later."""
        self._unacknowledged.append((packet_id, message.number))
        route = self._forwarder.route_topic(message.topic)
        if route is not None and self._redelivered.get(packet_id) != message.number:
            self.waiting.append(Taken(route, message, packet_id))
        return self.flush(now_ms)

    def flush(self, now_ms: Millis) -> bool:
        """Log, send and acknowledge what waits; ``False`` when it cannot be logged."""
        runs = [list(run) for _, run in groupby(self.waiting, key=lambda taken: id(taken.route))]
        if runs:
            frames = self._number(runs)
            try:
                self._disk.check()
            except DiskFullError:
                return False
            self._outlet.too_old(self.log.append(frames))
            self._outlet.step()
            self.waiting = []
            for run, kept in zip(runs, frames, strict=True):
                for key in keys_in(kept.keys):
                    self.tails.made(key, kept.seq, now_ms)
                if run[0].route.sends:
                    self._outlet.send(self._frame(kept), run[0].route.sends)
        self._outlet.step()
        done, self._unacknowledged = self._unacknowledged, []
        self._outlet.acknowledge(done)
        return True

    def _number(self, runs: list[list[Taken]]) -> list[KeptFrame]:
        frames: list[KeptFrame] = []
        made: dict[bytes, int] = {}
        for seq, run in enumerate(runs, self.log.next_seq):
            keys = run[0].route.keys
            prevs = tuple(made.get(key) or self.log.head(key) for key in keys_in(keys))
            made.update(dict.fromkeys(keys_in(keys), seq))
            messages = [taken.message for taken in run]
            frames.append(
                KeptFrame(
                    seq=seq,
                    time_us=self._now_us(),
                    publications=len(run),
                    keys=keys,
                    prevs=prevs,
                    body=b"".join(packet_of(m.topic, m.number, m.qos) for m in messages),
                    numbers=tuple(m.number for m in messages),
                    packet_ids=tuple(taken.packet_id for taken in run),
                )
            )
        return frames

    # What others may have missed

    def send_tails(self, now_ms: Millis) -> None:
        """Repeat the heads that are due."""
        due = sorted(self.tails.due(now_ms))
        if not due:
            return
        me, keys = self._self_id, b"".join(key for key, _ in due)
        mask = (1 << len(due)) - 1
        route = self._forwarder.route_frame(keys, mask, sender=me, origin=me)
        if route.sends:
            epoch, seq = self._outlet.number()
            body = self.log.epoch.to_bytes(8, "big")
            frame = self._label(TAIL_FLAG, epoch, seq, self._now_us(), 0, keys, body)
            frame.chain = struct.pack(f">{len(due)}Q", *(head for _, head in due))
            self._outlet.send(frame, route.sends)

    def on_request(self, request: RepairRequest) -> None:
        """Send what somebody missed, back along the way the request came."""
        first, *rest = reversed(request.path)
        if request.epoch != self.log.epoch:
            return
        repairs = answer(self.log, request.chains)
        for index, repair in enumerate(repairs, 1):
            flags = CUSTODY_FLAG | REPAIR_FLAG
            if repair.frame is not None:
                frame = self._frame(repair.frame, flags)
            else:
                flags, epoch = flags | VOID_FLAG, Epoch(self.log.epoch)
                frame = self._label(flags, epoch, repair.through, 0, 0, repair.key, b"")
                frame.chain = bytes(8)
            if index == len(repairs):
                frame.flags |= LAST_FLAG
            frame.route = tuple(rest)
            if not self._outlet.send_repair(first, frame):
                return

    def _frame(self, kept: ArchivedFrame, flags: int = CUSTODY_FLAG) -> Frame:
        frame = self._label(
            flags,
            Epoch(self.log.epoch),
            kept.seq,
            kept.time_us,
            kept.publications,
            kept.keys,
            kept.body,
        )
        frame.chain = struct.pack(f">{len(kept.prevs)}Q", *kept.prevs)
        return frame

    def _label(
        self,
        flags: int,
        epoch: Epoch,
        seq: int,
        time_us: int,
        publications: int,
        keys: bytes,
        body: bytes,
    ) -> Frame:
        return Frame(
            flags=flags,
            hops=0,
            hop_limit=HOP_LIMIT,
            sender=self._self_id,
            origin=self._self_id,
            epoch=epoch,
            seq=seq,
            origin_time_us=time_us,
            publications=publications,
            keys=keys,
            mask=(1 << len(keys) // KEY_BYTES) - 1,
            body=memoryview(body),
        )

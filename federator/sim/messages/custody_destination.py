"""Custody at a broker with subscribers, as the runtime does it: journal, publish, marker.

Source: docs/protocol.md section 11; ``runtime.custody_destination`` with a simulated disk.
"""

from collections.abc import Callable
from typing import Protocol

from federator.protocol.custody import Chained, Delivery, Receiver
from federator.protocol.frames import KEY_BYTES, Frame, chain_numbers
from federator.protocol.types import Millis
from federator.sim.data import publications_of
from federator.sim.messages.disks import CustodyDisk, DiskFullError
from federator.sim.messages.sessions import Message

MARKER_WAIT_MS = 1_000
"""How long after the broker is up frames are refused, unless the marker comes."""

FORMER_MS = 60_000
"""How long after our start a filter of our clients counts as one of those before."""


class DestinationOutlet(Protocol):
    """What the destination's side needs of the process around it."""

    def write(self, messages: list[Message], marker: bytes, *, noted: bool) -> None:
        """Publish on our broker: these, and behind them the marker; ``noted`` in the journal."""

    def step(self) -> None:
        """One more thing is done that a crash may come after."""


class DestinationSide:
    """The chains that one broker's clients want.

    Args:
        disk: Where deliveries are noted.
        keep_ms: An origin silent for so long has forgotten.
        outlet: The process around.
        now_us: Our wall clock.
        started_ms: Our monotonic clock.
    """

    def __init__(
        self,
        *,
        disk: CustodyDisk,
        keep_ms: int,
        outlet: DestinationOutlet,
        now_us: Callable[[], int],
        started_ms: Millis,
    ) -> None:
        self.receiver: Receiver[Frame] = Receiver(keep_ms=keep_ms)
        self._disk = disk
        self._outlet = outlet
        self._now_us = now_us
        self._former_since_us = dict(disk.journal.since_us)
        self._former_until_ms = started_ms + FORMER_MS
        self._marker: int | None = None
        self._started = False
        self._up_ms: Millis | None = None
        self._due: list[Delivery[Frame]] = []

    def want(self, key: bytes, now_ms: Millis) -> None:
        """Our clients subscribe to the filter with ``key``."""
        now_us = self._now_us()
        since_us = self._former_since_us.pop(key, now_us)
        if now_ms > self._former_until_ms:
            self._former_since_us.clear()
            since_us = now_us
        self.receiver.want(key, since_us=since_us)

    def on_local_up(self, now_ms: Millis) -> None:
        """Our broker may have no marker, and none means that everything was delivered."""
        self._up_ms = now_ms
        if self._started:
            self._outlet.write([], self._disk.journal.marker(), noted=True)

    def on_marker(self, payload: bytes) -> None:
        """Our broker tells how far we got in an earlier life."""
        marker = self._disk.journal.read_marker(payload)
        if marker is not None and not self._started:
            self._marker = marker

    def arrive(self, frame: Frame, local: tuple[int, ...], now_ms: Millis, *, room: bool) -> None:
        """Take a frame that our clients want by its filters at the positions ``local``."""
        if not self._start(now_ms):
            return
        self._due += self.receiver.arrive(
            frame.origin,
            frame.epoch,
            frame.seq,
            _links(frame, local),
            frame,
            size=len(frame.body),
            made_us=frame.origin_time_us,
            now_us=self._now_us(),
            now_ms=now_ms,
            room=room,
        )

    def on_tail(self, frame: Frame, local: tuple[int, ...], now_ms: Millis) -> None:
        """The origin repeats the heads of chains, some of which our clients want."""
        if not self._start(now_ms):
            return
        self.receiver.tail(
            frame.origin,
            int.from_bytes(frame.body, "big"),
            _links(frame, local),
            made_us=frame.origin_time_us,
            now_us=self._now_us(),
            now_ms=now_ms,
        )

    def on_void(self, frame: Frame, now_ms: Millis) -> None:
        """The origin has nothing for us on a chain up to the number of ``frame``."""
        if not self._start(now_ms):
            return
        self._due += self.receiver.skip(
            frame.origin, frame.epoch, frame.keys[:KEY_BYTES], frame.seq, now_ms=now_ms
        )

    def flush(self) -> None:
        """Publish everything whose turn came, between the journal and the marker."""
        due, self._due = self._due, []
        if not due:
            return
        journal, noted = self._disk.journal, True
        try:
            self._disk.check()
            journal.append([(d.origin, d.epoch, d.seq, d.keys) for d in due])
        except DiskFullError:
            noted = False
        self._outlet.step()
        messages = [
            Message(topic, qos, number)
            for delivery in due
            for number, topic, qos in publications_of(delivery.frame)
        ]
        self._outlet.write(messages, journal.marker(), noted=noted)

    def save(self) -> None:
        """Write down since when our clients want what."""
        since_us = self._former_since_us | dict(self.receiver.since_us)
        if self._disk.full_for or since_us == self._disk.journal.since_us:
            return
        self._disk.journal.since_us = since_us
        if self._started:
            self._disk.journal.keep_only(self.receiver.positions())

    def _start(self, now_ms: Millis) -> bool:
        """With the first frame after the marker has come, or had time to; whether it has."""
        if self._started:
            return True
        journal = self._disk.journal
        waited = self._up_ms is not None and now_ms >= self._up_ms + MARKER_WAIT_MS
        if self._marker is None and journal.last and not waited:
            return False
        if self._disk.full_for:
            return False
        self._started = True
        self.receiver.restore(journal.resume(self._marker), {}, now_ms=now_ms)
        self.on_local_up(now_ms)
        return True


def _links(frame: Frame, local: tuple[int, ...]) -> tuple[Chained, ...]:
    keys, numbers = frame.keys, chain_numbers(frame)
    return tuple(Chained(keys[at * KEY_BYTES : (at + 1) * KEY_BYTES], numbers[at]) for at in local)

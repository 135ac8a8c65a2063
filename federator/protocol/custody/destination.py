"""Custody at a broker with subscribers: each frame once, in order, across our own death.

Before a frame is published, the journal on disk says that it will be; behind it, in the same queue,
our broker gets a retained marker that says it was. When we come back, the marker tells how far the
broker got, whatever we had time to write down.

Source: docs/protocol.md section 11.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from federator.protocol import effects as e
from federator.protocol.custody.disk_trouble import DiskTrouble
from federator.protocol.custody.recall import Recall
from federator.protocol.custody.receiver import Chained, Delivery, Receiver
from federator.protocol.frames import KEY_BYTES, Frame, chain_numbers, keys_in
from federator.protocol.types import BrokerId, Millis

FORMER_MS = 60_000
"""How long after our start a filter of our clients counts as one of those before."""

MARKER_WAIT_MS = 1_000
"""How long after our broker is up frames are refused, unless the marker comes; it may be lost."""
RECALL_HELD_BYTES_MAX = 1_048_576
RECALL_KEEP_MS = 3_600_000
GIVEN_MAX = 65_536

Positions = Mapping[tuple[BrokerId, bytes], tuple[int, int]]
"""By (origin, key): the epoch, and the number of the last frame delivered."""


class Journal(Protocol):
    """What was delivered, on disk. Methods that write raise ``OSError`` and leave it as it was."""

    @property
    def last(self) -> int:
        """Number of the last entry; 0 without one."""

    @property
    def is_due(self) -> bool:
        """It is time for a snapshot."""

    def since_us(self) -> Mapping[bytes, int]:
        """Since when our clients want what, as of the last snapshot."""

    def append(self, deliveries: Sequence[tuple[BrokerId, int, int, bytes]]) -> int:
        """Write down what is delivered next: origin, epoch, number and keys of each."""

    def resume(self, marker: int | None) -> Positions:
        """Where each chain is when entries up to ``marker`` were delivered; ``None``: all were.

        Entries after it are struck out.
        """

    def snapshot(
        self, positions: Positions | None, since_us: Mapping[bytes, int], *, folded_to: int
    ) -> None:
        """Replace entries up to ``folded_to`` by positions; ``None``: those that it knows."""

    def marker(self) -> bytes:
        """What to leave at our broker behind the last entry."""

    def read_marker(self, payload: bytes) -> int | None:
        """The entry that a marker of this journal names."""


class DestinationOutlet(Protocol):
    """What a destination needs of the process around it."""

    @property
    def settled(self) -> bool:
        """Our broker is connected, and has acknowledged all that we published."""

    def deliver(self, frame: Frame) -> None:
        """Publish a frame on our broker."""

    def mark(self, marker: bytes) -> None:
        """Have our broker keep ``marker`` behind all that we published."""

    def tell(self, notice: e.Notice) -> None:
        """Tell the operator."""


class Destination:
    """The chains that our clients want.

    Args:
        receiver: What arrived and what is missing.
        journal: What was delivered.
        outlet: The process around.
        wall_clock_us: Microseconds since 1970.
        now_ms: Our monotonic clock.

    Attributes:
        receiver: As given.
        recall: What is fetched a second time, for clients that came later.
        started: We know how far an earlier life of ours got. Until then every frame is refused.
        trouble: Of the journal.
    """

    def __init__(
        self,
        *,
        receiver: Receiver[Frame],
        journal: Journal,
        outlet: DestinationOutlet,
        wall_clock_us: Callable[[], int],
        now_ms: Millis,
    ) -> None:
        self.receiver = receiver
        self.recall: Recall[Frame] = Recall(
            Receiver(held_bytes_max=RECALL_HELD_BYTES_MAX, keep_ms=RECALL_KEEP_MS)
        )
        self.started = False
        self._journal = journal
        self._outlet = outlet
        self._wall_clock_us = wall_clock_us
        self._former_since_us = dict(journal.since_us())
        self._former_until_ms = now_ms + FORMER_MS
        self._marker: int | None = None
        self._up_ms: Millis | None = None
        self._marked = 0  # the last entry whose marker our broker is known to have
        self._wants = self._saved_wants = 0  # changes of what our clients want
        self._due: list[Delivery[Frame]] = []
        self._again: list[Delivery[Frame]] = []  # recalled: the journal need not have them
        self._given: set[tuple[BrokerId, int]] = set()  # while there is a recall
        self.trouble = DiskTrouble(e.Notice("custody.journal_failed", "error"), outlet.tell)

    def want(self, key: bytes, now_ms: Millis) -> None:
        """Our clients subscribe to the filter with ``key``."""
        now_us = self._wall_clock_us()
        since_us = self._former_since_us.pop(key, now_us)
        if now_ms > self._former_until_ms:
            self._former_since_us.clear()
            since_us = now_us
        self.receiver.want(key, since_us=since_us)
        self._wants += 1

    def unwant(self, key: bytes) -> None:
        """They no longer do."""
        self.receiver.unwant(key)
        self._wants += 1

    def expect(self, keys: Sequence[bytes], since_us: int) -> None:
        """Clients will come that wanted ``keys`` since ``since_us``."""
        now_us = self._wall_clock_us()
        for key in keys:
            self.receiver.begin_at(key, since_us=since_us, now_us=now_us)

    def fetch_again(self, keys: Sequence[bytes], since_us: int, now_ms: Millis) -> None:
        """They came: what was delivered here since then is fetched again."""
        if self.started:
            self.recall.begin(self.receiver.positions(), keys, since_us=since_us, now_ms=now_ms)

    def on_local_up(self, now_ms: Millis) -> None:
        """Our broker is up. It may have lost the marker, and none means: all was delivered."""
        self._up_ms = now_ms
        if self.started:
            self._outlet.mark(self._journal.marker())

    def on_marker(self, payload: bytes) -> None:
        """Our broker tells how far we got in an earlier life."""
        if not self.started:
            self._marker = self._journal.read_marker(payload)

    def arrive(self, frame: Frame, local: tuple[int, ...], now_ms: Millis, *, room: bool) -> None:
        """Take a frame that our clients want by its filters at the positions ``local``."""
        if not self._start(now_ms):
            return
        links = _links(frame, local)
        when = _When(frame.origin_time_us, self._wall_clock_us(), now_ms)
        self._due += self._offer(self.receiver, frame, links, when, room)
        if self.recall:
            due = self._offer(self.recall, frame, links, when, room)
            self._again += due

    def _offer(
        self,
        taker: Receiver[Frame] | Recall[Frame],
        frame: Frame,
        links: tuple[Chained, ...],
        when: "_When",
        room: bool,
    ) -> list[Delivery[Frame]]:
        return taker.arrive(
            frame.origin,
            frame.epoch,
            frame.seq,
            links,
            frame,
            size=len(frame.body),
            made_us=when.made_us,
            now_us=when.now_us,
            now_ms=when.now_ms,
            room=room,
        )

    def on_tail(self, frame: Frame, local: tuple[int, ...], now_ms: Millis) -> None:
        """The origin repeats the heads of chains, some of which our clients want."""
        if self._start(now_ms) and len(frame.body) == 8:
            self.receiver.tail(
                frame.origin,
                int.from_bytes(frame.body, "big"),
                _links(frame, local),
                made_us=frame.origin_time_us,
                now_us=self._wall_clock_us(),
                now_ms=now_ms,
            )

    def on_void(self, frame: Frame, now_ms: Millis) -> None:
        """The origin has nothing for us on a chain up to the number of ``frame``."""
        if not self._start(now_ms):
            return
        voids = self.receiver.voids
        self._due += self.receiver.skip(
            frame.origin, frame.epoch, frame.keys[:KEY_BYTES], frame.seq, now_ms=now_ms
        )
        self._again += self.recall.skip(
            frame.origin, frame.epoch, frame.keys[:KEY_BYTES], frame.seq, now_ms=now_ms
        )
        if self.receiver.voids > voids:
            details: dict[str, int | str] = {"origin": frame.origin, "so_far": self.receiver.voids}
            self._outlet.tell(e.Notice("custody.gone", "warning", details))

    def flush(self, now_ms: Millis) -> None:
        """Publish everything whose turn came, between the journal and the marker."""
        due, self._due = self._due, []
        again, self._again = self._again, []
        if again or (self._given and not self.recall):
            self._deliver(again)
        if not due:
            return
        try:
            self._journal.append([(d.origin, d.epoch, d.seq, d.keys) for d in due])
        except OSError as error:
            self.trouble.on_error(error, now_ms)
        self._deliver(due)
        self._outlet.mark(self._journal.marker())

    def _deliver(self, deliveries: Sequence[Delivery[Frame]]) -> None:
        """Publish frames, each once while some are recalled beside those whose turn it is."""
        recalling = len(self.recall) > 0 and len(self._given) < GIVEN_MAX
        for delivery in deliveries:
            number = (delivery.origin, delivery.seq)
            if number in self._given:
                continue
            if recalling:
                self._given.add(number)
            if delivery.frame.publications:
                self._outlet.deliver(delivery.frame)
        if not self.recall:
            self._given.clear()

    def save(self, now_ms: Millis, *, leaving: bool = False) -> None:
        """Bound the journal, and write down since when our clients want what.

        Args:
            now_ms: Our monotonic clock.
            leaving: Write it down in any case.
        """
        if self.started and self._outlet.settled:
            self._marked = self._journal.last
        wants_changed = self._saved_wants != self._wants
        if not (leaving or wants_changed or self._journal.is_due):
            return
        positions = self.receiver.positions() if self.started else None
        since_us = {**self._former_since_us, **self.receiver.since_us}
        try:
            self._journal.snapshot(positions, since_us, folded_to=self._marked)
        except OSError as error:
            self.trouble.on_error(error, now_ms)
        else:
            self._saved_wants = self._wants

    def _start(self, now_ms: Millis) -> bool:
        """Begin with the first frame after the marker has come, or had time to; whether we did."""
        if self.started:
            return True
        waited = self._up_ms is not None and now_ms >= self._up_ms + MARKER_WAIT_MS
        if self._marker is None and self._journal.last and not waited:
            return False
        try:
            positions = self._journal.resume(self._marker)
        except OSError as error:
            self.trouble.on_error(error, now_ms)
            return False
        self.started = True
        self.receiver.restore(positions, now_ms=now_ms)
        self._outlet.mark(self._journal.marker())
        return True


class _When(NamedTuple):
    """When a frame was made and when it came."""

    made_us: int
    now_us: int
    now_ms: Millis


def _links(frame: Frame, local: tuple[int, ...]) -> tuple[Chained, ...]:
    """The places of ``frame`` on the chains that our clients want."""
    keys, numbers = keys_in(frame.keys), chain_numbers(frame)
    return tuple(Chained(keys[index], numbers[index]) for index in local)

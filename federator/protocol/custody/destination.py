"""Custody at a broker with subscribers: each frame once, in order, across our own death.

Before a frame is published, the journal on disk says that it will be; behind it, in the same queue,
our broker gets a retained marker that says it was. When we come back, the marker tells how far the
broker got, whatever we had time to write down.

Source: docs/protocol.md section 11.
"""

from collections import Counter
from collections.abc import Sequence

from federator.protocol.custody.chains import NOBODY, Chained, Delivery
from federator.protocol.custody.doubts import Doubted
from federator.protocol.custody.ports import CustodyContext, Disk
from federator.protocol.custody.recall import Recall
from federator.protocol.custody.receiver import Receiver
from federator.protocol.data.delivery import Delivery as LocalDelivery
from federator.protocol.effects import Notice
from federator.protocol.forwarding.frames import KEY_BYTES, Frame, chain_numbers, keys_in
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.types import BrokerId, Millis, Now

FORMER_MS = 60_000
"""How long after our start a filter of our clients counts as one of those before."""

MARKER_WAIT_MS = 1_000
"""How long after our broker is up frames are refused, unless the marker comes; it may be lost."""
RECALL_HELD_BYTES_MAX = 1_048_576
RECALL_KEEP_MS = 3_600_000
GIVEN_MAX = 65_536
COMPLAINT_GAP_MS = Millis(60_000)


class Destination:
    """The chains that our clients want.

    Attributes:
        receiver: What arrived and what is missing.
        recall: What is fetched a second time, for clients that came later.
        started: We know how far an earlier life of ours got. Until then every frame is refused.
        lies: Numbers that their origin never made, by the neighbour that brought them.
    """

    def __init__(
        self,
        *,
        receiver: Receiver[Frame],
        disk: Disk,
        delivery: LocalDelivery,
        outlet: CustodyContext,
        now_ms: Millis,
    ) -> None:
        self.receiver = receiver
        self.recall: Recall[Frame] = Recall(
            Receiver(held_bytes_max=RECALL_HELD_BYTES_MAX, keep_ms=RECALL_KEEP_MS)
        )
        self.started = False
        self._disk = disk
        self._journal = disk.journal
        self._delivery = delivery
        self._outlet = outlet
        self._former_since_us = dict(disk.journal.since_us())
        self._former_until_ms = now_ms + FORMER_MS
        self._marker: int | None = None
        self._refused = False  # a marker that was not ours
        self._up_ms: Millis | None = None
        self._marked = 0  # the last entry whose marker our broker is known to have
        self._wants = self._saved_wants = 0  # changes of what our clients want
        self._due: list[Delivery[Frame]] = []
        self._again: list[Delivery[Frame]] = []  # recalled: the journal need not have them
        self.lies: Counter[BrokerId] = Counter()
        self._said: RateLimiter[BrokerId] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=64)
        self._given: set[tuple[BrokerId, int]] = set()  # while there is a recall

    def want(self, key: bytes, now: Now) -> None:
        """Our clients subscribe to the filter with ``key``."""
        since_us = self._former_since_us.pop(key, now.us)
        if now.ms > self._former_until_ms:
            self._former_since_us.clear()
            since_us = now.us
        self.receiver.want(key, since_us=since_us)
        self._wants += 1

    def unwant(self, key: bytes) -> None:
        """Our clients no longer subscribe to the filter with ``key``."""
        self.receiver.unwant(key)
        self._wants += 1

    def fetch_again(self, keys: Sequence[bytes], since_us: int, now_ms: Millis) -> None:
        """Fetch again what was delivered here since then: clients came that wanted ``keys``."""
        if self.started:
            self.recall.begin(self.receiver.positions(), keys, since_us=since_us, now_ms=now_ms)

    def on_local_up(self, now_ms: Millis) -> None:
        """Our broker is up. It may have lost the marker."""
        self._up_ms = now_ms
        if self.started:
            self._delivery.mark(self._journal.marker())

    def on_marker(self, payload: bytes) -> None:
        """Our broker tells how far we got in an earlier life."""
        if self.started or not payload:
            return
        number = self._journal.read_marker(payload)
        if number is not None:
            self._marker = max(number, self._marker or 0)
        elif not self._refused:
            self._refused = True
            self._outlet.tell(Notice("custody.marker_refused", "warning", {}))

    def arrive(
        self, frame: Frame, local: tuple[int, ...], now: Now, *, first: bool = False
    ) -> None:
        """Take a frame that our clients want by its filters at the positions ``local``.

        ``first``: no copy of it came before, as far as we know.
        """
        if not self._start(now.ms):
            return
        links = _links(frame, local)
        self._due += self._offer(self.receiver, frame, links, now, first)
        if self.recall and (ours := self.recall.recalled(frame.origin, frame.seq, links)):
            due = self._offer(self.recall.receiver, frame, ours, now, False)
            self._again += self.recall.taken(due)

    def _offer(
        self,
        receiver: Receiver[Frame],
        frame: Frame,
        links: tuple[Chained, ...],
        now: Now,
        first: bool,
    ) -> list[Delivery[Frame]]:
        return receiver.arrive(
            frame.origin,
            frame.epoch,
            frame.seq,
            links,
            frame,
            size=len(frame.body),
            made_us=frame.origin_time_us,
            now_us=now.us,
            now_ms=now.ms,
            room=self._delivery.room,
            first=first,
            brought_by=frame.sender,
        )

    def on_tail(self, frame: Frame, local: tuple[int, ...], now: Now) -> None:
        """The origin repeats the heads of chains, some of which our clients want."""
        if self._start(now.ms) and len(frame.body) == 8:
            self.receiver.tail(
                frame.origin,
                int.from_bytes(frame.body, "big"),
                _links(frame, local),
                made_us=frame.origin_time_us,
                now_us=now.us,
                now_ms=now.ms,
                brought_by=frame.sender,
            )

    def on_word(self, frame: Frame, now: Now) -> None:
        """The origin answers what we doubted."""
        keys, numbers = keys_in(frame.keys), chain_numbers(frame)
        lies = self.receiver.on_word(
            frame.origin,
            frame.epoch,
            frame.seq,
            [Chained(key, number) for key, number in zip(keys, numbers, strict=True)],
            made_us=frame.origin_time_us,
            now=now,
        )
        for lie in lies:
            self._wants += 1  # the positions on disk are wrong: write them anew
            self._tell_lie(frame.origin, lie, now)

    def _tell_lie(self, origin: BrokerId, lie: Doubted, now: Now) -> None:
        self.lies[lie.brought_by] += 1
        if self._said.allow(lie.brought_by, now.ms):
            details: dict[str, int | str] = {"origin": origin, "so_far": self.lies[lie.brought_by]}
            if lie.brought_by != NOBODY:
                details["neighbour"] = lie.brought_by
            self._outlet.tell(Notice("custody.never_made", "warning", details))

    def on_void(self, frame: Frame, now_ms: Millis) -> None:
        """The origin has nothing for us on a chain up to the number of ``frame``."""
        if not self._start(now_ms):
            return
        voids, key = self.receiver.voids, frame.keys[:KEY_BYTES]
        gone = (frame.origin, frame.epoch, key, frame.seq)
        self._due += self.receiver.skip(*gone, now_ms=now_ms, brought_by=frame.sender)
        self._again += self.recall.skip(*gone, now_ms=now_ms)
        if self.receiver.voids > voids:
            details: dict[str, int | str] = {"origin": frame.origin, "so_far": self.receiver.voids}
            self._outlet.tell(Notice("custody.gone", "warning", details))

    def flush(self, now: Now) -> None:
        """Publish everything whose turn came, between the journal and the marker."""
        due, self._due = self._due, []
        again, self._again = self._again, []
        if again or (self._given and not self.recall):
            self._deliver(again, now)
        if not due:
            return
        # A journal that cannot be written holds up nobody: after a kill now, some comes twice.
        self._disk.write_journal([(d.origin, d.epoch, d.seq, d.keys) for d in due])
        self._deliver(due, now)
        self._delivery.mark(self._journal.marker())

    def _deliver(self, deliveries: Sequence[Delivery[Frame]], now: Now) -> None:
        """Publish frames, each once while some are recalled beside those whose turn it is."""
        recalling = len(self.recall) > 0 and len(self._given) < GIVEN_MAX
        for delivery in deliveries:
            number = (delivery.origin, delivery.seq)
            if number in self._given:
                continue
            if recalling:
                self._given.add(number)
            if delivery.frame.publications:
                self._delivery.deliver(delivery.frame, now)
        if not self.recall:
            self._given.clear()

    def save(self, *, leaving: bool = False) -> None:
        """Bound the journal, and write down since when our clients want what.

        Args:
            leaving: Write it down in any case.
        """
        if self.started and self._marked != self._journal.last and self._delivery.settled:
            self._marked = self._journal.last
            self._disk.note_marked(self._marked)
        wants_changed = self._saved_wants != self._wants
        if not (leaving or wants_changed or self._journal.is_due):
            return
        positions = self.receiver.positions() if self.started else None
        since_us = {**self._former_since_us, **self.receiver.since_us}
        if self._disk.fold_journal(positions, since_us, folded_to=self._marked):
            self._saved_wants = self._wants

    def _start(self, now_ms: Millis) -> bool:
        """Begin with the first frame after the marker has come, or had time to; whether we did."""
        if self.started:
            return True
        waited = self._up_ms is not None and now_ms >= self._up_ms + MARKER_WAIT_MS
        if self._marker is None and self._journal.last and not waited:
            return False
        positions = self._disk.resume_journal(self._marker)
        if positions is None:
            return False
        self.started = True
        self.receiver.restore(positions, now_ms=now_ms)
        self._delivery.mark(self._journal.marker())
        return True


def _links(frame: Frame, local: tuple[int, ...]) -> tuple[Chained, ...]:
    """The places of ``frame`` on the chains that our clients want."""
    keys, numbers = keys_in(frame.keys), chain_numbers(frame)
    return tuple(Chained(keys[index], numbers[index]) for index in local)

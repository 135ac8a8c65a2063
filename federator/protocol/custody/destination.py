"""Custody at a broker with subscribers: each frame once, in order, across our own death.

Before a frame is published, the journal on disk says that it will be; behind it, in the same queue,
our broker gets a retained marker that says it was. When we come back, the marker tells how far the
broker got, whatever we had time to write down.

Source: docs/protocol.md sections 11, 11.8 and 15; docs/failover.md.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass

from federator.protocol.bounded_cache import Recent
from federator.protocol.custody.chains import NOBODY, Ask, Chained, Placed
from federator.protocol.custody.doubts import Doubted
from federator.protocol.custody.ports import CustodyContext, Delivered, Disk, Positions
from federator.protocol.custody.receiver import Receiver
from federator.protocol.custody.retrieval import RETRIEVALS_MAX, Retrieval
from federator.protocol.data.delivery import Delivery
from federator.protocol.effects import Notice
from federator.protocol.forwarding.frames import (
    KEY_BYTES,
    REPAIR_FLAG,
    Frame,
    chain_numbers,
    keys_in,
)
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.types import BrokerId, Millis, Now

FORMER_MS = 60_000
"""How long after our start a filter of our clients counts as one of those before."""

MARKER_WAIT_MS = 1_000
"""How long after our broker is up frames are refused, unless the marker comes; it may be lost."""
GIVEN_MAX = 65_536
RECENT_MAX = 8_192
"""Frames delivered last that do not come twice where a lie took a chain back: seconds of them."""

COMPLAINT_GAP_MS = Millis(60_000)

RECALL_HELD_BYTES_MAX = 1_048_576
RECALL_MS = 60_000
"""A recall that is not complete by then is given up: its origin is out of reach."""
RECALLED_CHAINS_MAX = 65_536
"""Filters times origins; of more, those asked for last are not recalled."""
ASKED_IN_VAIN_MAX = 3
"""Times that a chain is asked for without anything new: then there is nothing more."""


class Recall:
    """Fetching again what was delivered here already, for clients that came after it.

    When we step in for a broker that died, its clients' sessions begin here some time after its
    death. What was published in between, and that nobody here wanted, the receiver asks for as a
    beginning. But what others here wanted, by the same filter or by one that overlaps, was
    delivered before those clients had a session: it is fetched a second time, from each origin's
    log, up to where the receiver stood. Whoever subscribed all along gets these frames twice. A
    chain that brings nothing new any more is done.

    Attributes:
        receiver: A second one, with room of its own. It follows the recalled chains only.
    """

    def __init__(self) -> None:
        self.receiver = Receiver(held_bytes_max=RECALL_HELD_BYTES_MAX)
        self._until: dict[tuple[BrokerId, bytes], int] = {}  # where each chain's recall ends
        self._asked: dict[tuple[BrokerId, bytes], tuple[int, int]] = {}  # after what, how often
        self._given_up_ms = Millis(0)

    def __len__(self) -> int:
        """Chains whose recall is not complete."""
        return len(self._until)

    def begin(
        self, positions: Positions, keys: Iterable[bytes], *, since_us: int, now_ms: Millis
    ) -> None:
        """Fetch what was made on ``keys`` since ``since_us``, up to ``positions``.

        Origins' wall clocks are taken to agree with ours.
        """
        self._given_up_ms = Millis(now_ms + RECALL_MS)
        newest: dict[BrokerId, tuple[int, ...]] = {}
        for (origin, _), position in positions.items():
            newest[origin] = max(newest.get(origin, (0, 0)), position)
        for key in sorted(set(keys)):
            for origin, (epoch, last, *_) in sorted(newest.items()):
                full = len(self._until) >= RECALLED_CHAINS_MAX
                if last and (origin, key) not in self._until and not full:
                    self._until[origin, key] = last
                    self.receiver.want(key, since_us=since_us)
                    self.receiver.look_back(origin, epoch, key, last, since_us, now_ms)

    def arrive(self, placed: Placed, now: Now, *, room: bool) -> list[Placed]:
        """Take a frame, for those of its chains on which it is fetched again."""
        frame = placed.frame
        until = self._until
        links = tuple(c for c in placed.links if frame.seq <= until.get((frame.origin, c.key), 0))
        if not links:
            return []
        return self._taken(self.receiver.arrive(Placed(frame, links), now, room=room))

    def skip(self, frame: Frame, now_ms: Millis) -> list[Placed]:
        """As ``Receiver.skip``."""
        if (frame.origin, frame.keys[:KEY_BYTES]) not in self._until:
            return []
        return self._taken(self.receiver.skip(frame, now_ms))

    def _taken(self, due: list[Placed]) -> list[Placed]:
        """Forget chains that are as far as the main receiver was; return what came."""
        for (origin, key), (_, last, *_) in self.receiver.positions().items():
            if last >= self._until.get((origin, key), 0):
                self._end(origin, key)
        return due

    def asks(self, now_ms: Millis) -> list[Ask]:
        if self._until and now_ms >= self._given_up_ms:
            self._until.clear()
            self._asked.clear()
            for key in list(self.receiver.since_us):
                self.receiver.unwant(key)
        asks = self.receiver.asks(now_ms)
        answered = self.receiver.positions()
        for ask in asks:
            for chain in ask.chains:
                at = (ask.origin, chain.key)
                after, times = self._asked.get(at, (-1, 0))
                self._asked[at] = (chain.after, times + 1 if after == chain.after else 1)
                if self._asked[at][1] > ASKED_IN_VAIN_MAX and at in answered:
                    self._end(*at)
        return asks

    def _end(self, origin: BrokerId, key: bytes) -> None:
        self._until.pop((origin, key), None)
        self._asked.pop((origin, key), None)
        self.receiver.leave(origin, key)
        if all(key != other for _, other in self._until):
            self.receiver.unwant(key)


@dataclass(eq=False)
class Destination:
    """The chains that our clients want.

    Attributes:
        retrievals: What gateways asked for lately.
        started: We know how far an earlier life of ours got. Until then every frame is refused.
        lies: Numbers that their origin never made, by the neighbour that brought them.
    """

    receiver: Receiver  # what arrived and what is missing
    disk: Disk
    delivery: Delivery
    outlet: CustodyContext
    now_ms: InitVar[Millis]

    def __post_init__(self, now_ms: Millis) -> None:
        self.recall = Recall()
        self.retrievals: list[Retrieval] = []
        self.started = False
        self._journal = self.disk.journal
        self._former_since_us = dict(self._journal.since_us())
        self._former_until_ms = now_ms + FORMER_MS
        self._marker: int | None = None
        self._refused = False  # a marker that was not ours
        self._up_ms: Millis | None = None
        self._marked = 0  # the last entry whose marker our broker is known to have
        self._wants = self._saved_wants = 0  # changes of what our clients want
        self._due: list[Placed] = []
        self._again: list[Placed] = []  # recalled: the journal need not have them
        self.lies: Counter[BrokerId] = Counter()
        self._said: RateLimiter[BrokerId] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=64)
        self._recent: Recent[int, None] = Recent(RECENT_MAX)
        self._given: set[tuple[BrokerId, int]] = set()  # while there is a recall
        self._left: set[BrokerId] = set()  # origins whose positions on disk mean nothing

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

    def retrieve(
        self, keys: Sequence[bytes], since_us: int, tell: Callable[[Frame], None], now: Now
    ) -> bool:
        """Tell what was made on ``keys`` since then, and does not come to our clients any more.

        What is made from now on comes to them, on chains that begin later, too. Returns whether
        there is room for one more who asks.
        """
        self.end_retrievals(now.ms)
        if not self._start(now.ms) or len(self.retrievals) >= RETRIEVALS_MAX:
            return False
        for key in keys:
            self.receiver.expect(key, since_us=now.us, now_us=now.us)
        self.retrievals.append(
            Retrieval(self.receiver, keys, since_us=since_us, tell=tell, now=now)
        )
        return True

    def leave(self, origin: BrokerId) -> None:
        """Forget how far we are with what ``origin`` made."""
        self.receiver.forget(origin)
        self._left.add(origin)
        self._wants += 1

    def end_retrievals(self, now_ms: Millis) -> None:
        """Forget the questions that nobody waits for any more."""
        self.retrievals = [each for each in self.retrievals if now_ms < each.ends_ms]

    def on_local_up(self, now_ms: Millis) -> None:
        """Our broker is up. It may have lost the marker."""
        self._up_ms = now_ms
        if self.started:
            self.delivery.mark(self._journal.marker(), asks=True)

    def on_marker(self, payload: bytes) -> None:
        """Our broker tells how far we got in an earlier life."""
        if self.started or not payload:
            return
        number = self._journal.read_marker(payload)
        if number is not None:
            self._marker = max(number, self._marker or 0)
        elif not self._refused:
            self._refused = True
            self.outlet.tell(Notice("custody.marker_refused", "warning", {}))

    def arrive(
        self, frame: Frame, local: tuple[int, ...], now: Now, *, first: bool = False
    ) -> None:
        """Take a frame that our clients want by its filters at the positions ``local``.

        ``first``: no copy of it came before, as far as we know.
        """
        if not self._start(now.ms):
            return
        placed, room = _placed(frame, local), self.delivery.room
        ours = placed
        if self.retrievals and frame.flags & REPAIR_FLAG:  # it may be none of ours
            links = (each for each in placed.links if not self.receiver.is_too_old(frame, each.key))
            ours = Placed(frame, tuple(links))
        if ours.links:
            self._due += self.receiver.arrive(ours, now, room=room, first=first)
        if self.recall:
            self._again += self.recall.arrive(placed, now, room=room)
        for retrieval in self.retrievals:
            retrieval.arrive(placed, now)

    def on_tail(self, frame: Frame, local: tuple[int, ...], now: Now) -> None:
        """The origin repeats the heads of chains, some of which our clients want."""
        if self._start(now.ms) and len(frame.body) == 8:
            placed = _placed(frame, local)
            self.receiver.tail(placed, now)
            for retrieval in self.retrievals:
                retrieval.tail(placed, now)

    def on_word(self, frame: Frame, now: Now) -> None:
        """The origin answers what we doubted."""
        for lie in self.receiver.on_word(_placed(frame, range(frame.k)), now):
            self._wants += 1  # the positions on disk are wrong: write them anew
            self._tell_lie(frame.origin, lie, now)

    def _tell_lie(self, origin: BrokerId, lie: Doubted, now: Now) -> None:
        self.lies[lie.brought_by] += 1
        if self._said.allow(lie.brought_by, now.ms):
            details: dict[str, int | str] = {"origin": origin, "so_far": self.lies[lie.brought_by]}
            if lie.brought_by != NOBODY:
                details["neighbour"] = lie.brought_by
            self.outlet.tell(Notice("custody.never_made", "warning", details))

    def on_void(self, frame: Frame, now_ms: Millis) -> None:
        """The origin has nothing for us on a chain up to the number of ``frame``."""
        if not self._start(now_ms):
            return
        voids = self.receiver.voids
        self._due += self.receiver.skip(frame, now_ms)
        self._again += self.recall.skip(frame, now_ms)
        for retrieval in self.retrievals:
            retrieval.skip(frame, now_ms)
        if self.receiver.voids > voids:
            # Or after a restart the way past it would look like a lie, and what follows come again.
            passed = frame.origin, frame.epoch, frame.seq, frame.keys[:KEY_BYTES]
            self.disk.write_journal([passed])
            details: dict[str, int | str] = {"origin": frame.origin, "so_far": self.receiver.voids}
            self.outlet.tell(Notice("custody.gone", "warning", details))

    def queue(self, frame: Frame) -> None:
        """Publish a frame that custody does not count, behind what arrived before it."""
        self._due.append(Placed(frame, ()))

    def flush(self, now: Now) -> None:
        """Publish everything whose turn came, between the journal and the marker."""
        due, self._due = self._due, []
        again, self._again = self._again, []
        if again or (self._given and not self.recall):
            self._deliver([placed.frame for placed in again], now)
        if not due:
            return
        counted = [_entry(placed) for placed in due if placed.links]
        # A journal that cannot be written holds up nobody: after a kill now, some comes twice.
        if counted:
            self.disk.write_journal(counted)
        new = [each.frame for each in due if not each.links or self._is_new(each.frame)]
        self._deliver(new, now)
        if counted:
            self.delivery.mark(self._journal.marker())

    def _is_new(self, frame: Frame) -> bool:
        """Whether it was not delivered lately: a chain that was taken back goes its way again.

        Its content counts, too (by a hash that nobody outside can aim at): what stood in its place,
        by a lie, is another frame. So is one whose Message Expiry ran on while it waited.
        """
        named = (frame.origin, frame.epoch, frame.seq, frame.publications)
        mark = hash((*named, frame.body))
        if mark in self._recent:
            self.receiver.duplicates += 1
            return False
        self._recent.put(mark, None)
        return True

    def _deliver(self, frames: Sequence[Frame], now: Now) -> None:
        """Publish frames, each once while some are recalled beside those whose turn it is."""
        recalling = len(self.recall) > 0 and len(self._given) < GIVEN_MAX
        together: list[Frame] = []  # of one bundle
        for frame in frames:
            if frame.acknowledged:
                number = (frame.origin, frame.seq)
                if number in self._given:
                    continue
                if recalling:
                    self._given.add(number)
            if not frame.publications:
                continue
            if together and frame.order is not together[0].order:
                self._deliver_together(together, now)
                together = []
            if frame.order:
                together.append(frame)
            else:
                self.delivery.deliver(frame, now)
        self._deliver_together(together, now)
        if not self.recall:
            self._given.clear()

    def _deliver_together(self, frames: Sequence[Frame], now: Now) -> None:
        if len(frames) > 1:
            self.delivery.deliver_in_order(frames, now)
        elif frames:
            self.delivery.deliver(frames[0], now)

    def save(self, *, leaving: bool = False) -> None:
        """Bound the journal, and write down since when our clients want what.

        Args:
            leaving: Write it down in any case.
        """
        if self.started and self.delivery.settled:
            if self._marked != self._journal.last:
                self._marked = self._journal.last
                self.disk.note_marked(self._marked)
            stamps = self.delivery.stamps
            if stamps and stamps.unsaved and self.disk.write_stamps([*stamps.unsaved]):
                stamps.unsaved.clear()
        wants_changed = self._saved_wants != self._wants
        if not (leaving or wants_changed or self._journal.is_due):
            return
        positions = self.receiver.positions() if self.started else None
        since_us = {**self._former_since_us, **self.receiver.since_us}
        if self.disk.fold_journal(positions, since_us, folded_to=self._marked):
            self._saved_wants = self._wants

    def _start(self, now_ms: Millis) -> bool:
        """Begin with the first frame after the marker has come, or had time to; whether we did."""
        if self.started:
            return True
        waited = self._up_ms is not None and now_ms >= self._up_ms + MARKER_WAIT_MS
        if self._marker is None and self._journal.last and not waited:
            return False
        positions = self.disk.resume_journal(self._marker)
        if positions is None:
            return False
        self.started = True
        valid = {at: position for at, position in positions.items() if at[0] not in self._left}
        self.receiver.restore(valid, now_ms=now_ms)
        self.delivery.mark(self._journal.marker(), asks=True)
        return True


def _placed(frame: Frame, local: Iterable[int]) -> Placed:
    """``frame`` on the chains of its filters at the positions ``local``."""
    keys, numbers = keys_in(frame.keys), chain_numbers(frame)
    return Placed(frame, tuple(Chained(keys[index], numbers[index]) for index in local))


def _entry(placed: Placed) -> Delivered:
    """What the journal has of a delivery."""
    frame = placed.frame
    return frame.origin, frame.epoch, frame.seq, b"".join(link.key for link in placed.links)

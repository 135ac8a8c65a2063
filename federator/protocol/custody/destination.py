"""Custody at a broker with subscribers: each frame once, in order, even if this agent crashes.

Before a frame is published, the journal on disk records that it will be. After the frame, on the
same connection, our broker gets a retained marker that confirms it. After a restart the marker
shows how far the broker got, whatever we had time to write.

Source: docs/protocol.md sections 11, 11.8 and 15; docs/failover.md.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass
from itertools import groupby

from federator.protocol.bounded_cache import Recent
from federator.protocol.custody.chains import NOBODY, Ask, Chained, Placed
from federator.protocol.custody.doubts import Doubted
from federator.protocol.custody.ports import CustodyContext, Delivered, Disk, Positions, Publisher
from federator.protocol.custody.receiver import Receiver
from federator.protocol.custody.retrieval import RETRIEVALS_MAX, Retrieval
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
"""For how long after our start a subscription counts as one of the earlier run."""

MARKER_WAIT_MS = 1_000
"""For so long after our broker is up we wait for the marker, which may be lost, and refuse
frames.
"""
GIVEN_MAX = 65_536
RECENT_MAX = 8_192
"""How many of the last deliveries are remembered, so that none is repeated after a chain was rolled
back: those of some seconds.
"""

COMPLAINT_GAP_MS = Millis(60_000)

RECALL_HELD_BYTES_MAX = 1_048_576
RECALL_MS = 60_000
"""A recall that is not complete by then is given up: its origin is out of reach."""
RECALLED_CHAINS_MAX = 65_536
"""Filters times origins; of more, the last ones are not recalled."""
ASKED_IN_VAIN_MAX = 3
"""After so many requests for a chain without anything new, nothing more will come."""


class Recall:
    """Fetches again what was delivered here already, for clients that came after it.

    When we step in for a broker that died, its clients' sessions begin here some time after its
    death. If no client here wanted what was published in between, the receiver asks for it as the
    beginning of a chain. But if others here wanted it, by the same filter or by one that overlaps,
    it was delivered before those clients had a session. It is then fetched a second time, from each
    origin's log, up to the receiver's position. Clients that were subscribed all along get these
    frames twice. A chain is done when requests bring nothing new.

    Attributes:
        receiver: A second receiver, with room of its own, for the recalled chains only.
    """

    def __init__(self) -> None:
        self.receiver = Receiver(held_bytes_max=RECALL_HELD_BYTES_MAX)
        # The number at which the recall of each chain ends.
        self._until: dict[tuple[BrokerId, bytes], int] = {}
        # (last number asked after, how often), by chain.
        self._requests: dict[tuple[BrokerId, bytes], tuple[int, int]] = {}
        self._given_up_ms = Millis(0)

    def __len__(self) -> int:
        """How many chains are being recalled."""
        return len(self._until)

    def begin(
        self, positions: Positions, keys: Iterable[bytes], *, since_us: int, now_ms: Millis
    ) -> None:
        """Fetch what was made on ``keys`` since ``since_us``, up to ``positions``.

        This takes the origins' wall clocks to agree with ours.
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
        """Take a frame for those of its chains that are being recalled; return what is due."""
        frame = placed.frame
        until = self._until
        links = tuple(c for c in placed.links if frame.seq <= until.get((frame.origin, c.key), 0))
        if not links:
            return []
        return self._taken(self.receiver.arrive(Placed(frame, links), now, room=room))

    def skip(self, frame: Frame, now_ms: Millis) -> list[Placed]:
        """Skip lost or missing numbers as ``Receiver.skip`` does."""
        if (frame.origin, frame.keys[:KEY_BYTES]) not in self._until:
            return []
        return self._taken(self.receiver.skip(frame, now_ms))

    def _taken(self, due: list[Placed]) -> list[Placed]:
        """End the recall of chains that reached the main receiver's position; return ``due``."""
        for (origin, key), (_, last, *_) in self.receiver.positions().items():
            if last >= self._until.get((origin, key), 0):
                self._end(origin, key)
        return due

    def asks(self, now_ms: Millis) -> list[Ask]:
        if self._until and now_ms >= self._given_up_ms:
            self._until.clear()
            self._requests.clear()
            for key in list(self.receiver.since_us):
                self.receiver.unwant(key)
        asks = self.receiver.asks(now_ms)
        answered = self.receiver.positions()
        for ask in asks:
            for chain in ask.chains:
                at = (ask.origin, chain.key)
                after, times = self._requests.get(at, (-1, 0))
                self._requests[at] = (chain.after, times + 1 if after == chain.after else 1)
                if self._requests[at][1] > ASKED_IN_VAIN_MAX and at in answered:
                    self._end(*at)
        return asks

    def _end(self, origin: BrokerId, key: bytes) -> None:
        self._until.pop((origin, key), None)
        self._requests.pop((origin, key), None)
        self.receiver.leave(origin, key)
        if all(key != other for _, other in self._until):
            self.receiver.unwant(key)


@dataclass(eq=False)
class Destination:
    """The chains that our clients want.

    Attributes:
        retrievals: Open questions of gateways.
        started: The position of an earlier run is known. Until then every frame is refused.
        lies: How many numbers that the origin denies each neighbour delivered.
    """

    receiver: Receiver  # what arrived and what is missing
    disk: Disk
    delivery: Publisher
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
        self._refused = False  # a foreign marker was refused
        self._up_ms: Millis | None = None
        self._marked = 0  # the last entry with a marker that our broker is known to have
        # Counts changes of what our clients want, and of positions that the journal does not know.
        self._changes = self._saved_changes = 0
        self._due: list[Placed] = []
        self._again: list[Placed] = []  # recalled frames, which need no journal entry
        self.lies: Counter[BrokerId] = Counter()
        self._complaints: RateLimiter[BrokerId] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=64)
        self._recent: Recent[int, None] = Recent(RECENT_MAX)
        # (origin, number) of frames delivered during a recall.
        self._given: set[tuple[BrokerId, int]] = set()
        self._left: set[BrokerId] = set()  # origins with void positions on disk

    def want(self, key: bytes, now: Now) -> None:
        """Our clients subscribe to the filter with ``key``."""
        since_us = self._former_since_us.pop(key, now.us)
        if now.ms > self._former_until_ms:
            self._former_since_us.clear()
            since_us = now.us
        self.receiver.want(key, since_us=since_us)
        self._changes += 1

    def unwant(self, key: bytes) -> None:
        """Our clients no longer subscribe to the filter with ``key``."""
        self.receiver.unwant(key)
        self._changes += 1

    def fetch_again(self, keys: Sequence[bytes], since_us: int, now_ms: Millis) -> None:
        """Deliver again, to late clients, what was delivered on ``keys`` since ``since_us``."""
        if self.started:
            self.recall.begin(self.receiver.positions(), keys, since_us=since_us, now_ms=now_ms)

    def retrieve(
        self, keys: Sequence[bytes], since_us: int, tell: Callable[[Frame], None], now: Now
    ) -> bool:
        """Pass to ``tell`` what was made on ``keys`` since then and will not reach our clients
        anyway.

        Later frames reach our clients by themselves, also on chains that begin later. Returns False
        when too many retrievals are open, or we have not started.
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
        """Forget our position in what ``origin`` made."""
        self.receiver.forget(origin)
        self._left.add(origin)
        self._changes += 1

    def end_retrievals(self, now_ms: Millis) -> None:
        """Drop retrievals after their time limit."""
        self.retrievals = [retrieval for retrieval in self.retrievals if now_ms < retrieval.ends_ms]

    def on_local_up(self, now_ms: Millis) -> None:
        """Our broker is up. It may have lost the marker, so publish the marker again."""
        self._up_ms = now_ms
        if self.started:
            self.delivery.mark(self._journal.marker(), asks=True)

    def on_marker(self, payload: bytes) -> None:
        """Handle the retained marker, which shows how far an earlier run got."""
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
        if self.retrievals and frame.flags & REPAIR_FLAG:  # it may be for a retrieval only
            links = (link for link in placed.links if not self.receiver.is_too_old(frame, link.key))
            ours = Placed(frame, tuple(links))
        if ours.links:
            self._due += self.receiver.arrive(ours, now, room=room, first=first)
        if self.recall:
            self._again += self.recall.arrive(placed, now, room=room)
        for retrieval in self.retrievals:
            retrieval.arrive(placed, now)

    def on_tail(self, frame: Frame, local: tuple[int, ...], now: Now) -> None:
        """Handle a tail: the origin repeats the heads of chains, some of which our clients want."""
        if self._start(now.ms) and len(frame.body) == 8:
            placed = _placed(frame, local)
            self.receiver.tail(placed, now)
            for retrieval in self.retrievals:
                retrieval.tail(placed, now)

    def on_word(self, frame: Frame, now: Now) -> None:
        """Handle the origin's answer to our doubts."""
        for lie in self.receiver.on_word(_placed(frame, range(frame.k)), now):
            self._changes += 1  # the positions on disk are wrong: write them anew
            self._log_forgery(frame.origin, lie, now)

    def _log_forgery(self, origin: BrokerId, lie: Doubted, now: Now) -> None:
        self.lies[lie.brought_by] += 1
        if self._complaints.allow(lie.brought_by, now.ms):
            details: dict[str, int | str] = {"origin": origin, "so_far": self.lies[lie.brought_by]}
            if lie.brought_by != NOBODY:
                details["neighbour"] = lie.brought_by
            self.outlet.tell(Notice("custody.never_made", "warning", details))

    def on_void(self, frame: Frame, now_ms: Millis) -> None:
        """Skip a chain up to the number of ``frame``: the origin has nothing for us there."""
        if not self._start(now_ms):
            return
        voids = self.receiver.voids
        self._due += self.receiver.skip(frame, now_ms)
        self._again += self.recall.skip(frame, now_ms)
        for retrieval in self.retrievals:
            retrieval.skip(frame, now_ms)
        if self.receiver.voids > voids:
            # Otherwise, after a restart, this skip would look like a forgery and later frames
            # repeat.
            passed = frame.origin, frame.epoch, frame.seq, frame.keys[:KEY_BYTES]
            self.disk.write_journal([passed])
            details: dict[str, int | str] = {"origin": frame.origin, "so_far": self.receiver.voids}
            self.outlet.tell(Notice("custody.gone", "warning", details))

    def queue(self, frame: Frame) -> None:
        """Publish a frame that is not under custody, after those that arrived before it."""
        self._due.append(Placed(frame, ()))

    def flush(self, now: Now) -> None:
        """Publish everything that is due, between the journal entry and the marker."""
        due, self._due = self._due, []
        again, self._again = self._again, []
        if again or (self._given and not self.recall):
            self._deliver([placed.frame for placed in again], now)
        if not due:
            return
        counted = [_entry(placed) for placed in due if placed.links]
        # A failed journal write delays nothing: if we are killed now, some frames come twice. Later
        # entries would seem to pass over what is not in it, so positions are written anew.
        if counted and not self.disk.write_journal(counted):
            self._changes += 1
        new = [entry.frame for entry in due if not entry.links or self._is_new(entry.frame)]
        self._deliver(new, now)
        if counted:
            self.delivery.mark(self._journal.marker())

    def _is_new(self, frame: Frame) -> bool:
        """Whether the frame was not delivered lately: after a rollback a chain repeats itself.

        The content counts, too, by a hash that no outsider can predict: a forged frame with the
        same number is another frame. So is one whose Message Expiry ran on while it waited.
        """
        named = (frame.origin, frame.epoch, frame.seq, frame.publications)
        mark = hash((*named, frame.body))
        if mark in self._recent:
            self.receiver.duplicates += 1
            return False
        self._recent.put(mark, None)
        return True

    def _deliver(self, frames: Sequence[Frame], now: Now) -> None:
        """Publish frames; during a recall, each only once."""
        recalling = len(self.recall) > 0 and len(self._given) < GIVEN_MAX
        due: list[Frame] = []
        for frame in frames:
            if frame.acknowledged:
                number = (frame.origin, frame.seq)
                if number in self._given:
                    continue
                if recalling:
                    self._given.add(number)
            if frame.publications:
                due.append(frame)
        for _, some in groupby(due, key=lambda frame: id(frame.order)):
            bundle = list(some)
            if len(bundle) > 1 and bundle[0].order:
                self.delivery.deliver_in_order(bundle, now)
            else:
                for frame in bundle:
                    self.delivery.deliver(frame, now)
        if not self.recall:
            self._given.clear()

    def save(self, *, leaving: bool = False) -> None:
        """Bound the journal, and record since when our clients want each filter.

        Args:
            leaving: Write in any case.
        """
        if self.started and self.delivery.settled:
            if self._marked != self._journal.last:
                self._marked = self._journal.last
                self.disk.note_marked(self._marked)
            unsaved = self.delivery.unsaved_stamps
            if unsaved and self.disk.write_stamps([*unsaved]):
                unsaved.clear()
        changed = self._saved_changes != self._changes
        if not (leaving or changed or self._journal.is_due):
            return
        positions = self.receiver.positions() if self.started else None
        since_us = {**self._former_since_us, **self.receiver.since_us}
        if self.disk.fold_journal(positions, since_us, folded_to=self._marked):
            self._saved_changes = self._changes

    def _start(self, now_ms: Millis) -> bool:
        """Start once the marker came or ``MARKER_WAIT_MS`` passed; return whether we have
        started.
        """
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
    """The journal entry of a delivery."""
    frame = placed.frame
    return frame.origin, frame.epoch, frame.seq, b"".join(link.key for link in placed.links)

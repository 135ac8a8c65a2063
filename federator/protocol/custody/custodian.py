"""Custody of one agent, both sides, and the path that requests and repairs take.

A request for missing frames travels back along the way that the origin's frames came: every agent
remembers which neighbours delivered them lately. A neighbour may deliver forged frames and drop the
request. So while frames are still missing, each further request goes to another one of these
neighbours. The request collects the brokers it passes, and the repairs return through them.

Source: docs/protocol.md section 11.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import InitVar, dataclass
from typing import Final

import msgspec

from federator.protocol.bounded_cache import Recent
from federator.protocol.custody.destination import Destination
from federator.protocol.custody.doubts import Doubted, Notary, asked_us
from federator.protocol.custody.origin import Origin
from federator.protocol.custody.owed import Owed
from federator.protocol.custody.ports import COLLECTED, CustodyContext, Disk, Publisher, Sender
from federator.protocol.custody.proofs import FrameJudge
from federator.protocol.custody.receiver import Receiver
from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.forwarding.frames import (
    KEY_BYTES,
    LAST_FLAG,
    TAIL_FLAG,
    VOID_FLAG,
    WORD_FLAG,
    Frame,
    OwnFrames,
)
from federator.protocol.messages.control import REPAIR_PATH_MAX, AskedChain, RepairRequest
from federator.protocol.timers import earliest
from federator.protocol.types import BrokerId, Epoch, Millis, Now

ORIGINS_MAX: Final = 4_096
WAYS_MAX: Final = 8
FRESH_MS: Final = 15_000
"""How much older than the newest way another way may be: an origin repeats its tails every 10 s."""


class Ways:
    """Which neighbours delivered each origin's frames lately."""

    def __init__(self) -> None:
        # By origin: when each neighbour delivered, the newest last.
        self._ways: Recent[BrokerId, Recent[BrokerId, Millis]] = Recent(ORIGINS_MAX)
        # By (asker, origin, whether a word is wanted): the first chain of the request, and the ways
        # tried for it.
        self._tried: Recent[
            tuple[BrokerId, BrokerId, bool], tuple[AskedChain, tuple[BrokerId, ...]]
        ] = Recent(ORIGINS_MAX)

    def note(self, origin: BrokerId, sender: BrokerId, now_ms: Millis) -> None:
        """Note that ``sender`` was the first neighbour to deliver a frame of ``origin``."""
        senders = self._ways.get(origin)
        if senders is None:
            senders = Recent(WAYS_MAX)
            self._ways.put(origin, senders)
        senders.put(sender, now_ms)

    def all(self, origin: BrokerId, *, but: Collection[BrokerId] = ()) -> list[BrokerId]:
        """The neighbours on the way to ``origin``, the newest first."""
        senders = self._ways.get(origin)
        if senders is None:
            return []
        newest_ms = next(reversed(senders.values()))
        fresh = (n for n in reversed(senders) if newest_ms - senders[n] <= FRESH_MS)
        return [neighbour for neighbour in fresh if neighbour not in but]

    def next(self, request: RepairRequest) -> BrokerId | None:
        """Where to send ``request``: the newest way; if repeated, a way that was not tried."""
        ways = self.all(request.origin, but=request.path)
        if not ways:
            return None
        asked = request.path[0], request.origin, request.asked_us > 0
        first, tried = self._tried.get(asked, (None, ()))
        if first != request.chains[0]:
            tried = ()
        left = [way for way in ways if way not in tried]
        tried, way = (tried, left[0]) if left else ((), ways[0])
        self._tried.put(asked, (request.chains[0], (*tried, way)))
        return way


@dataclass(kw_only=True, eq=False)
class Custodian:
    """Both sides of custody: ``origin`` and ``destination``.

    Attributes:
        owed: Filters that stay wanted although no broker in reach wants them.
        judge: Checks the proofs of arriving frames; ``None`` where frames are not proven.
        paused: Origins with ignored frames.
        due_ms: When ``on_time`` has something to do, or earlier.
    """

    disk: Disk
    outlet: CustodyContext
    forwarder: Forwarder
    outgoing: Sender
    delivery: Publisher
    own: OwnFrames
    notary: Notary
    # Limit for frames that wait for earlier ones; all may become deliverable at once.
    held_bytes_max: int
    now: InitVar[Now]

    def __post_init__(self, now: Now) -> None:
        disk, forwarder, own = self.disk, self.forwarder, self.own
        keep_ms = disk.keep_s * 1_000
        self.origin = Origin(disk, self.outgoing, forwarder, own, self.notary)
        receiver = Receiver(keep_ms=keep_ms, held_bytes_max=self.held_bytes_max)
        self.destination = Destination(receiver, disk, self.delivery, self.outlet, now.ms)
        self.owed = Owed(keep_ms=keep_ms)
        self.judge: FrameJudge | None = None
        if self.notary.proves:
            check, tell, counters = self.notary.check, self.outlet.tell, self.outgoing.counters
            self.judge = FrameJudge(check, self._request_proof, tell, counters)
        self.due_ms: Millis | None = None
        self.paused: set[BrokerId] = set()
        self._shared: frozenset[str] = frozenset()
        self._ways = Ways()
        # Numbers of our own frames that are to be delivered here, too.
        self._own_again: list[int] = []

    # Filters

    def resume(self, now: Now) -> None:
        """Restore the owed filters of an earlier run."""
        keep_us = self.owed.keep_ms * 1_000
        for filter, until_us in self.disk.load_owed().items():
            collected = until_us == COLLECTED
            wanted = collected or not until_us
            left_us = min(keep_us, (now.us + keep_us if wanted else until_us) - now.us)
            if left_us > 0:
                until_ms = Millis(now.ms + left_us // 1_000)
                self.owed.owe(filter, until_ms, collected=collected)
                self.forwarder.set_route(filter, self.owed.effective(filter, None))
        self.origin.resume(now.ms)
        self._set_due()

    def on_route(
        self, filter: str, route: FilterRoute | None, now: Now, *, lost: bool
    ) -> FilterRoute | None:
        """Return the route that the data plane is to use for ``filter``."""
        key = self.forwarder.key(filter)
        local = route is not None and route.local
        if local != self.destination.receiver.wants(key):
            if local:
                self.destination.want(key, now)
            else:
                self.destination.unwant(key)
        before = self.forwarder.route_of(filter)
        collected = before is not None and before.collected
        effective = self.owed.on_route(filter, route, lost=lost, now_ms=now.ms, collected=collected)
        if route is not None and (route.next_hops or route.destinations):
            self.origin.tails.hasten(key, now.ms)
            self._set_due()
        if effective is None or not effective.wanted or not (lost or filter in self.owed):
            self._write_wanted(filter, effective)
        elif lost:
            self.disk.write_owed(filter, now.us + self.owed.keep_ms * 1_000)
        return effective

    def _write_wanted(self, filter: str, route: FilterRoute | None) -> None:
        """Write down that ``filter``, which is not owed, is wanted, or no longer."""
        if route is not None and route.wanted:
            self.disk.write_owed(filter, COLLECTED if route.collected else 0)
        else:
            self.disk.write_owed(filter, 0 if filter in self._shared else None)

    def on_destinations_moved(self, brokers: AbstractSet[BrokerId], now: Now) -> None:
        """Repeat chain heads to destinations with a new route: the old one may have lost frames."""
        concerned = {broker for broker in brokers if self.forwarder.is_destination(broker)}
        if concerned:
            self.origin.on_destinations_moved(concerned, now.ms)
            self._set_due()

    def hold(self, brokers: Collection[BrokerId]) -> None:
        """Ignore frames of ``brokers`` until ``proceed`` is called for them."""
        self.paused.update(brokers)

    def pause(self, broker: BrokerId) -> None:
        """Ignore the copies that ``broker`` keeps for us: another way serves us."""
        self.paused.add(broker)
        self.destination.leave(broker)

    def proceed(
        self, broker: BrokerId, since_us: int, *, by_its_clock: bool, resumes: bool = False
    ) -> None:
        """Accept again what ``broker`` keeps for us and made since ``since_us``.

        Args:
            broker: A broker that was paused, or is new.
            since_us: Wall clock; 0: since our clients want it.
            by_its_clock: ``since_us`` is by the clock of ``broker``, not ours.
            resumes: Positions of an earlier run stay valid; ``since_us`` is for chains that were
                unknown then.
        """
        self.paused.discard(broker)
        if since_us:
            if not resumes:
                self.destination.leave(broker)
            self.destination.receiver.begin_anew(broker, since_us, by_its_clock=by_its_clock)

    def expect(self, filters: Sequence[str], now: Now, *, since_us: int) -> None:
        """Prepare for clients that wanted ``filters`` since ``since_us``, our wall clock.

        For those filters that no client here wants yet, publications since then are requested.
        """
        for filter in filters:
            key = self.forwarder.key(filter)
            self.destination.receiver.begin_at(key, since_us=since_us, now_us=now.us)

    def fetch_again(self, filters: Sequence[str], now: Now, *, since_us: int) -> None:
        """Deliver again, for clients that wanted ``filters`` since ``since_us``, our wall clock.

        Everything delivered here since then is delivered again, from other agents' logs and from
        ours.
        """
        keys = [self.forwarder.key(filter) for filter in filters]
        self.destination.fetch_again(keys, since_us, now.ms)
        self._own_again = sorted({*self._own_again, *self.origin.made_since(keys, since_us)})
        self._deliver_own_again(now)
        self._set_due()

    def retrieve(
        self, filters: Sequence[str], tell: Callable[[Frame], None], now: Now, *, since_us: int
    ) -> Iterator[Frame] | None:
        """Pass to ``tell`` what others made on ``filters``: see ``Destination.retrieve``.

        Returns what our own clients publish until it is read, oldest first; ``None`` if too many
        retrievals are open.
        """
        keys = [self.forwarder.key(filter) for filter in filters]
        has_room = self.destination.retrieve(keys, since_us, tell, now)
        self._set_due()
        return self._own_since(keys, since_us, now) if has_room else None

    def _own_since(self, keys: Sequence[bytes], since_us: int, now: Now) -> Iterator[Frame]:
        for seq in self.origin.made_since(keys, since_us):
            frame = self.origin.frame_again(seq, now.us)
            if frame is not None and frame.publications:
                yield frame

    def _deliver_own_again(self, now: Now) -> None:
        """Publish frames of our own once more, as far as our broker has room."""
        waiting = self._own_again
        done = 0
        while done < len(waiting) and self.delivery.room:
            frame = self.origin.frame_again(waiting[done], now.us)
            if frame is not None and frame.publications:
                self.delivery.deliver(frame, now)
            done += 1
        del waiting[:done]

    def share(self, filters: frozenset[str]) -> None:
        """Record that shared groups want ``filters``, and remove those they no longer want."""
        before, self._shared = self._shared, filters
        for filter in sorted(filters - before):
            self.disk.write_owed(filter, 0)
        for filter in sorted(before - filters):
            if not self.forwarder.wants(filter):
                self.disk.write_owed(filter, None)

    def on_way_opened(self, now: Now) -> None:
        """Ask at once for missing frames: a neighbour is in reach again."""
        self.destination.receiver.hasten(now.ms)
        self._set_due()

    # Frames and requests

    def on_frame(self, frame: Frame, local: tuple[int, ...], now: Now, *, first: bool) -> None:
        """Handle a frame under custody, or a tail, of another origin.

        ``local``: the positions of those of its filters that our clients subscribe to; ``first``:
        no copy came before.
        """
        if first:
            self._ways.note(frame.origin, frame.sender, now.ms)
        if not local:
            return
        if frame.flags & TAIL_FLAG:
            self.destination.on_tail(frame, local, now)
        else:
            self.destination.arrive(frame, local, now, first=first)

    def on_repair(self, frame: Frame, now: Now) -> None:
        """Handle a repair that is for us, or forward it."""
        if frame.route:
            following, *rest = frame.route
            frame.route = tuple(rest)
            frame.hops += 1
            if frame.hops < frame.hop_limit:
                self.outgoing.send_repair(following, frame, now_ms=now.ms)
            return
        if frame.flags & WORD_FLAG:
            # A word counts only if the origin signed it and it answers our open question.
            is_asked = self.destination.receiver.doubts.is_open(frame.origin, asked_us(frame))
            if is_asked and self.notary.holds(frame, self.own.self_id):
                self.destination.on_word(frame, now)
                if self.judge is not None:
                    self.judge.on_word(frame.origin, proves=frame.proof != b"", now=now)
        elif frame.flags & VOID_FLAG:
            self.destination.on_void(frame, now.ms)
        else:
            local = self.forwarder.route_frame(
                frame.keys, frame.mask, sender=frame.sender, origin=frame.origin
            ).local
            if local:
                self.destination.arrive(frame, local, now)
        if frame.flags & LAST_FLAG:
            self.destination.receiver.answered(frame.origin, now_ms=now.ms)
            self.destination.recall.receiver.answered(frame.origin, now_ms=now.ms)
            for retrieval in self.destination.retrievals:
                retrieval.receiver.answered(frame.origin, now_ms=now.ms)

    def _request_proof(self, frame: Frame, now: Now) -> None:
        """Ask the origin for its word, the way that ``frame``, which may be forged, came."""
        self._ways.note(frame.origin, frame.sender, now.ms)
        about_no_chain, nothing = bytes(KEY_BYTES), Doubted(0, frame.sender)
        doubts = self.destination.receiver.doubts
        doubts.doubt(frame.origin, about_no_chain, nothing, now_ms=now.ms)
        self._set_due()

    def on_request(self, request: RepairRequest, now: Now) -> None:
        """Answer a repair request, or forward it towards its origin."""
        if request.origin == self.own.self_id:
            self.origin.on_request(request, now)
            return
        if self.own.self_id in request.path or len(request.path) >= REPAIR_PATH_MAX:
            return
        following = self._ways.next(request)
        if following is not None:
            path = (*request.path, self.own.self_id)
            self.outlet.ask(following, msgspec.structs.replace(request, path=path))

    def missing_since_us(self, neighbour: BrokerId, now: Now) -> int:
        """Since when (our wall clock) the oldest frame is missing that we or ``neighbour`` made and
        the other lacks; 0: none is.
        """
        here_ms = self.destination.receiver.missing_since_ms(neighbour)
        here_us = 0 if here_ms is None else now.us - 1_000 * (now.ms - here_ms)
        there_us = self.origin.repeated_since_us(neighbour, now.ms)
        return min(here_us or there_us, there_us or here_us)

    def finish(self, now: Now) -> None:
        """End a read: publish what is due, and set ``due_ms``."""
        self.destination.flush(now)
        if self._own_again:
            self._deliver_own_again(now)
        self._set_due()

    def tend(self, now: Now) -> list[tuple[str, FilterRoute | None]]:
        """Enforce all bounds, every second or so; return the filters no longer owed."""
        self._deliver_own_again(now)
        self.origin.log.expire()
        self.destination.receiver.expire(now.ms)
        self.destination.end_retrievals(now.ms)
        self.destination.save()
        ended = self.owed.expire(now.ms)
        for filter, route in ended:
            self._write_wanted(filter, route)
        return ended

    def on_time(self, now: Now) -> None:
        """Send requests for missing frames, and tails that are due."""
        self.due_ms = None
        asks = self.destination.receiver.asks(now.ms) + self.destination.recall.asks(now.ms)
        self.destination.end_retrievals(now.ms)
        for retrieval in self.destination.retrievals:
            asks += retrieval.asks(now.ms)
        for ask in asks:
            path = (self.own.self_id,)
            request = RepairRequest(ask.origin, Epoch(ask.epoch), path, ask.chains)
            neighbour = self._ways.next(request)
            if neighbour is not None:
                self.outlet.ask(neighbour, request)
        for origin, asked, chains in self.destination.receiver.doubts.questions(now):
            for neighbour in self._ways.all(origin):
                request = RepairRequest(origin, Epoch(0), (self.own.self_id,), chains, asked)
                self.outlet.ask(neighbour, request)
        self.origin.send_tails(now)
        self._set_due()

    def _set_due(self) -> None:
        due_ms = earliest(
            self.destination.receiver.next_deadline_ms(),
            self.destination.receiver.doubts.next_deadline_ms(),
            self.destination.recall.receiver.next_deadline_ms(),
            *(retrieval.receiver.next_deadline_ms() for retrieval in self.destination.retrievals),
            self.origin.tails.next_deadline_ms(),
        )
        # A deadline that moved later is kept: an idle wake-up costs less than a timer per frame.
        if due_ms is not None and (self.due_ms is None or due_ms < self.due_ms):
            self.due_ms = due_ms

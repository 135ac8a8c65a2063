"""What arrived on each chain, what is missing, and whom to ask for it.

For each (origin, filter) that our clients subscribe to, the number of the last frame delivered is
all there is to remember. A frame whose predecessor was delivered is next; an older one is a copy;
a newer one shows a gap, waits in a bounded room, and the origin is asked for what lies between. A
frame of several filters is next when it is next on each of them. Since numbers only grow, the
oldest missing frame is always next on all its chains: the room empties from the front.

A chain that we meet in its middle may have begun before we listened, or while we were cut off. So
its origin is asked for what it made since our clients subscribe, in its own clock: the frame that
told us of the chain carries its time, and we know how long before it our clients had subscribed.

Source: docs/protocol.md section 11.
"""

from collections.abc import Iterable, Mapping
from typing import Generic

from federator.protocol.custody.chains import (
    RETRY_MIN_MS,
    Ask,
    Chain,
    Chained,
    Delivery,
    F,
    Held,
    OriginState,
    Wanted,
)
from federator.protocol.messages.control import AskedChain
from federator.protocol.timers import Timers
from federator.protocol.types import BrokerId, Millis

FIRST_ASK_MS = 20
"""A gap may close by itself: copies on a longer way come later."""

FORMER_EPOCH_MS = 30_000
"""An epoch unheard for so long may give way to a smaller one: its origin lost its disk and its
clock. One that is alive repeats its tails at least every 10 s."""

RETRY_MAX_MS = 5_000
CHAINS_PER_ASK_MAX = 64
CHAINS_MAX = 1_048_576
HELD_BYTES_MAX = 8 * 1024 * 1024
HELD_MAX = 65_536


class Receiver(Generic[F]):
    """The chains of one broker.

    Args:
        keep_ms: An origin unheard for so long has forgotten what we could ask for.
        chains_max: Chains followed; of more, frames are delivered as they come.
        held_bytes_max: Bytes of frames that wait for earlier ones; more are asked for again.

    Attributes:
        duplicates: Frames that were here before.
        voids: Times that an origin no longer had what we missed.
        asked: Requests made.
    """

    def __init__(
        self,
        *,
        keep_ms: int = 3_600_000,
        chains_max: int = CHAINS_MAX,
        held_bytes_max: int = HELD_BYTES_MAX,
    ) -> None:
        self._keep_ms = keep_ms
        self._chains_max = chains_max
        self._held_bytes_max = held_bytes_max
        self._origins: dict[BrokerId, OriginState[F]] = {}
        self._wanted = Wanted(keep_ms=keep_ms)
        self._chains = 0
        self._timers: Timers[BrokerId] = Timers()
        self.held_bytes = 0
        self.duplicates = 0
        self.voids = 0
        self.asked = 0

    def __len__(self) -> int:
        """How many chains are followed."""
        return self._chains

    @property
    def gaps(self) -> int:
        """Chains on which something is known to be missing."""
        return sum(len(origin.gaps) for origin in self._origins.values())

    # What our clients want

    def want(self, key: bytes, *, since_us: int) -> None:
        """Our clients subscribe to the filter with ``key`` since ``since_us``, our wall clock."""
        self._wanted.since_us.setdefault(key, since_us)

    def begin_at(self, key: bytes, *, since_us: int, now_us: int) -> None:
        """A client that we step in for wanted ``key`` since ``since_us``, our wall clock.

        Chains that begin within a minute, or whose beginning is not known yet, are asked for from
        then.
        """
        self._wanted.expect(key, since_us, now_us)
        for known in self._origins.values():
            chain = known.chains.get(key)
            if chain is not None and chain.last is None:
                chain.not_before_us = min(chain.not_before_us, since_us)

    def look_back(
        self,
        origin: BrokerId,
        epoch: int,
        key: bytes,
        until: int,
        *,
        not_before_us: int,
        now_ms: Millis,
    ) -> None:
        """Ask for what ``origin`` made on ``key`` since ``not_before_us``, its wall clock, up to
        number ``until``.
        """
        known = self._origin(origin, epoch, now_ms)
        if known is not None:
            self._chains += key not in known.chains
            known.chains[key] = Chain(None, until, max(1, not_before_us))
            self._look_for_gap(origin, known, key, now_ms)

    def leave(self, origin: BrokerId, key: bytes) -> None:
        """Follow one chain no longer, and remember nothing of it."""
        known = self._origins.get(origin)
        if known is not None and known.chains.pop(key, None) is not None:
            self._chains -= 1
            known.gaps.pop(key, None)
            self._drop_held(known, key)

    def unwant_all(self) -> None:
        """Follow nothing any more."""
        for key in list(self._wanted.since_us):
            self.unwant(key)

    def unwant(self, key: bytes) -> None:
        """Our clients no longer subscribe to the filter with ``key``."""
        self._wanted.since_us.pop(key, None)
        for origin in self._origins.values():
            chain = origin.chains.pop(key, None)
            if chain is not None:
                self._chains -= 1
                origin.remember(key, chain)
                origin.gaps.pop(key, None)
                self._drop_held(origin, key)

    def wants(self, key: bytes) -> bool:
        """Whether our clients subscribe to the filter with ``key``."""
        return key in self._wanted.since_us

    @property
    def since_us(self) -> Mapping[bytes, int]:
        """The keys of what our clients subscribe to, and since when."""
        return self._wanted.since_us

    # What arrives

    def arrive(
        self,
        origin: BrokerId,
        epoch: int,
        seq: int,
        links: tuple[Chained, ...],
        frame: F,
        *,
        size: int,
        made_us: int,
        now_us: int,
        now_ms: Millis,
        room: bool = True,
    ) -> list[Delivery[F]]:
        """Take a frame; return what is to be delivered now, in order.

        Args:
            origin: Who made it.
            epoch: Of the origin's numbering.
            seq: Its number.
            links: Its place on each chain that we follow, at least one.
            frame: Handed back when its turn comes.
            size: Bytes it holds while it waits.
            made_us: When it was made, by the origin's wall clock.
            now_us: Our wall clock.
            now_ms: Our monotonic clock.
            room: Our broker can take it now; otherwise it is asked for again later.
        """
        known = self._origin(origin, epoch, now_ms)
        if known is None:  # of a life of the origin that has ended
            self.duplicates += 1
            return []
        chains = known.chains
        next_everywhere, concerned = room, False
        for key, prev in links:
            chain = chains.get(key)
            if chain is None:
                if self._chains >= self._chains_max:
                    continue  # no room to follow it: what comes is delivered as it comes
                chain = self._begin(known, key, prev, made_us, now_us)
            last = chain.last
            if seq <= chain.begun:  # from before our clients' time: this chain has no say
                continue
            concerned = True
            if last is None or prev > last:
                next_everywhere = False
            elif seq <= last:
                # Delivered already. Chains that were met later may not know it, and go on behind.
                self.duplicates += 1
                return self._pass(origin, known, seq, links, now_ms)
            if seq > chain.target:
                chain.target = seq
        # Every chain was begun behind it: a straggler. One that is not followed cannot say so.
        if not concerned and all(key in chains for key, _ in links):
            self.duplicates += 1
            return self._pass(origin, known, seq, links, now_ms)
        if next_everywhere:
            return self._deliver(origin, known, seq, links, frame, now_ms)
        for key, _ in links:
            self._look_for_gap(origin, known, key, now_ms)
        # Without room at our broker nothing is held either: it is asked for again, in small parts.
        if room:
            self._hold(known, seq, links, frame, size)
        return []

    def tail(
        self,
        origin: BrokerId,
        epoch: int,
        heads: Iterable[Chained],
        *,
        made_us: int,
        now_us: int,
        now_ms: Millis,
    ) -> None:
        """The origin says which frame is the last one on each of some chains (``prev``).

        That does not begin a chain for clients that have just come: the last one may be theirs, and
        still be on a longer way than this word. The origin will say it again.
        """
        known = self._origin(origin, epoch, now_ms)
        if known is None:
            return
        for key, head in heads:
            chain = known.chains.get(key)
            if chain is None:
                if self._chains >= self._chains_max or self._wanted.is_fresh(key, now_us):
                    continue
                chain = self._begin(known, key, head, made_us, now_us)
            chain.target = max(chain.target, head)
            self._look_for_gap(origin, known, key, now_ms)

    def skip(
        self, origin: BrokerId, epoch: int, key: bytes, through: int, *, now_ms: Millis
    ) -> list[Delivery[F]]:
        """The origin has nothing for us on a chain up to ``through``; return what follows."""
        known = self._origins.get(origin)
        chain = known.chains.get(key) if known is not None and known.epoch == epoch else None
        if known is None or chain is None:
            return []
        if chain.last is not None and through <= chain.last:
            return []
        if chain.last is not None:
            self.voids += 1
        else:
            chain.begun = through = max(through, chain.begun)
        chain.last = through
        chain.target = max(chain.target, through)
        self._close_gap(origin, known, key)
        done: list[Delivery[F]] = []
        for seq in sorted(known.held):
            held = known.held.get(seq)
            if held is None:
                continue
            if known.is_stale(seq, held.links):
                self._unhold(known, seq)
            elif known.is_next(seq, held.links):
                self._unhold(known, seq)
                done += self._deliver(origin, known, seq, held.links, held.frame, now_ms)
        return done

    def answered(self, origin: BrokerId, *, now_ms: Millis) -> None:
        """The last frame of an answer came: ask for the rest, if there is any."""
        known = self._origins.get(origin)
        if known is not None and known.gaps:
            self._timers.set(origin, now_ms)

    # What to ask for

    def next_deadline_ms(self) -> Millis | None:
        """When ``asks`` has something to say."""
        return self._timers.next_deadline_ms()

    def asks(self, now_ms: Millis) -> list[Ask]:
        """What to ask for now."""
        asks: list[Ask] = []
        for origin in self._timers.pop_due(now_ms):
            known = self._origins.get(origin)
            if known is None or not known.gaps:
                continue
            chains = [
                AskedChain(key, chain.last or 0, chain.not_before_us if chain.last is None else 0)
                for key in known.gaps
                for chain in (known.chains[key],)
            ]
            chains.sort(key=lambda asked: asked.after)
            asks.append(Ask(origin, known.epoch, tuple(chains[:CHAINS_PER_ASK_MAX])))
            self.asked += 1
            self._timers.set(origin, Millis(now_ms + known.retry_ms))
            known.retry_ms = min(2 * known.retry_ms, RETRY_MAX_MS)
        return asks

    def hasten(self, now_ms: Millis) -> None:
        """A way may be open again: ask for everything that is missing now."""
        for origin, known in self._origins.items():
            if known.gaps:
                known.retry_ms = RETRY_MIN_MS
                self._timers.set_sooner(origin, now_ms)

    # What survives us

    def positions(self) -> dict[tuple[BrokerId, bytes], tuple[int, int]]:
        """By (origin, key): the epoch, and the number of the last frame delivered."""
        return {
            (origin, key): (known.epoch, chain.last)
            for origin, known in self._origins.items()
            for key, chain in known.chains.items()
            if chain.last is not None
        }

    def restore(
        self,
        positions: Mapping[tuple[BrokerId, bytes], tuple[int, int]],
        *,
        now_ms: Millis,
    ) -> None:
        """Go on where an earlier life of this agent ended."""
        for (origin, key), (epoch, last) in positions.items():
            known = self._origin(origin, epoch, now_ms)
            if known is not None:
                self._chains += key not in known.chains
                known.chains[key] = Chain(last, last)

    def expire(self, now_ms: Millis) -> None:
        """Forget origins that are silent for so long that they have forgotten, too."""
        for origin, known in list(self._origins.items()):
            if now_ms - known.heard_ms > self._keep_ms:
                self._forget(origin, known)

    # Inside

    def _origin(self, origin: BrokerId, epoch: int, now_ms: Millis) -> OriginState[F] | None:
        """The state of ``origin``; ``None`` when ``epoch`` is a former one."""
        known = self._origins.get(origin)
        if known is not None and epoch == known.epoch:
            known.heard_ms = now_ms
            return known
        if known is not None:
            if epoch < known.epoch and now_ms - known.heard_ms < FORMER_EPOCH_MS:
                return None
            self._forget(origin, known)
        known = self._origins[origin] = OriginState(epoch, now_ms)
        return known

    def _forget(self, origin: BrokerId, known: OriginState[F]) -> None:
        self._chains -= len(known.chains)
        self.held_bytes -= sum(held.size for held in known.held.values())
        self._timers.clear(origin)
        del self._origins[origin]

    def _begin(
        self, known: OriginState[F], key: bytes, prev: int, made_us: int, now_us: int
    ) -> Chain:
        self._chains += 1
        age_us = self._wanted.age_us(key, now_us)
        known_beginning = prev == 0 or self._wanted.is_fresh(key, now_us)
        chain = Chain(prev if known_beginning else None, prev, max(1, made_us - age_us))
        chain.begun = known.former.pop(key, 0)
        if known_beginning:
            chain.begun = max(prev, chain.begun)
        known.chains[key] = chain
        return chain

    def _pass(
        self,
        origin: BrokerId,
        known: OriginState[F],
        seq: int,
        links: tuple[Chained, ...],
        now_ms: Millis,
    ) -> list[Delivery[F]]:
        """A frame was delivered before some of its chains were followed: go on behind it there."""
        for key, prev in links:
            chain = known.chains.get(key)
            if chain is not None and chain.last is not None and prev <= chain.last < seq:
                chain.last = seq
                self._close_gap(origin, known, key)
        done: list[Delivery[F]] = []
        for following, its_links, frame in self._followers(known, seq, links):
            done += self._deliver(origin, known, following, its_links, frame, now_ms)
        return done

    def _deliver(
        self,
        origin: BrokerId,
        known: OriginState[F],
        seq: int,
        links: tuple[Chained, ...],
        frame: F,
        now_ms: Millis,
    ) -> list[Delivery[F]]:
        """Deliver a frame, and after it those that waited for it."""
        chains, gaps = known.chains, known.gaps
        done: list[Delivery[F]] = []
        due: list[tuple[int, tuple[Chained, ...], F]] = [(seq, links, frame)]
        while due:
            seq, links, frame = due.pop()
            keys = links[0].key if len(links) == 1 else b"".join(key for key, _ in links)
            done.append(Delivery(origin, known.epoch, seq, keys, frame))
            for key, _ in links:
                chain = chains.get(key)
                if chain is not None and (chain.last is None or chain.last < seq):
                    chain.last = seq
            if known.held:
                self._unhold(known, seq)
                due += self._followers(known, seq, links)
                due.sort(key=lambda waiting: -waiting[0])
            for key in [key for key, _ in links if key in gaps]:
                self._close_gap(origin, known, key)
        if gaps:
            known.retry_ms = RETRY_MIN_MS
            self._timers.set(origin, Millis(now_ms + RETRY_MIN_MS))
        return done

    def _followers(
        self, known: OriginState[F], seq: int, links: tuple[Chained, ...]
    ) -> list[tuple[int, tuple[Chained, ...], F]]:
        """The held frames whose turn came with frame ``seq``."""
        found: list[tuple[int, tuple[Chained, ...], F]] = []
        for key, _ in links:
            follower = known.waiting.pop((key, seq), None)
            held = known.held.get(follower) if follower is not None else None
            if follower is None or held is None:
                continue
            if known.is_next(follower, held.links):
                self._unhold(known, follower)
                found.append((follower, held.links, held.frame))
        return found

    def _look_for_gap(
        self, origin: BrokerId, known: OriginState[F], key: bytes, now_ms: Millis
    ) -> None:
        chain = known.chains.get(key)
        if chain is None or key in known.gaps:
            return
        if chain.last is None or chain.last < chain.target:
            if not known.gaps:
                known.retry_ms = RETRY_MIN_MS
                soon_ms = FIRST_ASK_MS if chain.last is not None else 0
                self._timers.set(origin, Millis(now_ms + soon_ms))
            known.gaps[key] = None

    def _close_gap(self, origin: BrokerId, known: OriginState[F], key: bytes) -> None:
        chain = known.chains.get(key)
        if chain is None or (chain.last is not None and chain.last >= chain.target):
            known.gaps.pop(key, None)
            if not known.gaps:
                self._timers.clear(origin)

    def _hold(
        self, known: OriginState[F], seq: int, links: tuple[Chained, ...], frame: F, size: int
    ) -> None:
        if seq in known.held:
            return
        if self.held_bytes + size > self._held_bytes_max or len(known.held) >= HELD_MAX:
            return
        self.held_bytes += size
        known.held[seq] = Held(links, frame, size)
        for key, prev in links:
            known.waiting[(key, prev)] = seq

    def _unhold(self, known: OriginState[F], seq: int) -> None:
        held = known.held.pop(seq, None)
        if held is not None:
            self.held_bytes -= held.size
            for link in held.links:
                if known.waiting.get((link.key, link.prev)) == seq:
                    del known.waiting[(link.key, link.prev)]

    def _drop_held(self, known: OriginState[F], key: bytes) -> None:
        for seq in [s for s, held in known.held.items() if any(k == key for k, _ in held.links)]:
            self._unhold(known, seq)

"""Which chains are followed, their positions, and the room for frames that wait for earlier ones.

Arriving frames move the chains: see ``receiver``.

Source: docs/protocol.md section 11.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from federator.protocol.custody.chains import (
    NOBODY,
    RETRY_MIN_MS,
    Chain,
    OriginState,
    Placed,
    Wanted,
)
from federator.protocol.custody.ports import Positions
from federator.protocol.forwarding.frames import Frame
from federator.protocol.timers import Timers
from federator.protocol.types import BrokerId, Millis

FIRST_ASK_MS = 20
"""A gap that a frame shows may close by itself: copies on a longer way come later. A gap that a
tail shows does not: its origin has sent nothing for a while, or a route was lost.
"""

HELD_BYTES_MAX = 8 * 1024 * 1024
HELD_MAX = 65_536


@dataclass(kw_only=True, eq=False)
class Followed:
    """The chains of one broker."""

    keep_ms: int = 3_600_000  # an origin silent for so long has dropped what we could ask for
    # When there are more, the neighbour that brought most of them loses one.
    origins_max: int = 4_096
    chains_max: int = 1_048_576  # frames of further chains are delivered as they come
    # Limit for frames that wait; others are requested again later.
    held_bytes_max: int = HELD_BYTES_MAX

    def __post_init__(self) -> None:
        self._origins: dict[BrokerId, OriginState] = {}
        # Origins by the neighbour that brought them first, oldest first.
        self._brought: dict[BrokerId, dict[BrokerId, None]] = {}
        self._wanted = Wanted(keep_ms=self.keep_ms)
        self._chains = 0
        # By origin: since when its frames count, and whether that is by the origin's clock.
        self._anew: dict[BrokerId, tuple[int, bool]] = {}
        self._timers: Timers[BrokerId] = Timers()
        self.held_bytes = 0

    def __len__(self) -> int:
        """How many chains are followed."""
        return self._chains

    @property
    def gaps(self) -> int:
        """How many chains have missing frames."""
        return sum(len(origin.gaps) for origin in self._origins.values())

    # What our clients want

    def want(self, key: bytes, *, since_us: int) -> None:
        """Our clients subscribe to the filter with ``key`` since ``since_us``, our wall clock."""
        self._wanted.since_us.setdefault(key, since_us)

    def expect(self, key: bytes, *, since_us: int, now_us: int) -> None:
        """A new client wants ``key`` since ``since_us``, our wall clock.

        Chains that begin within a minute are requested from ``since_us`` on.
        """
        self._wanted.expect(key, since_us, now_us)

    def begin_at(self, key: bytes, *, since_us: int, now_us: int) -> None:
        """A client of the dead broker wanted ``key`` since ``since_us``, our wall clock.

        Chains that begin within a minute, or whose beginning is not known yet, are requested from
        ``since_us`` on.
        """
        self.expect(key, since_us=since_us, now_us=now_us)
        for state in self._origins.values():
            chain = state.chains.get(key)
            if chain is not None and chain.last is None:
                chain.not_before_us = min(chain.not_before_us, since_us)

    def look_back(
        self, origin: BrokerId, epoch: int, key: bytes, until: int, since_us: int, now_ms: Millis
    ) -> None:
        """Ask for what ``origin`` made on ``key`` since ``since_us``, its clock, up to
        ``until``.
        """
        chain = Chain(None, until, max(1, since_us))
        self._look_for_gap(self._follow(origin, epoch, key, chain, now_ms), key, now_ms)

    def forget(self, origin: BrokerId) -> None:
        """Stop following all chains of ``origin``, and drop its state."""
        if origin in self._origins:
            self._forget(self._origins[origin])

    def begin_anew(self, origin: BrokerId, since_us: int, *, by_its_clock: bool) -> None:
        """For chains of ``origin`` that begin from now on, ask for everything since ``since_us``,
        even if our clients came later, and for nothing older.

        ``since_us`` is by its wall clock, or by ours.
        """
        self._anew[origin] = (since_us, by_its_clock)

    def is_fresh(self, origin: BrokerId, key: bytes, now_us: int) -> bool:
        """Whether the subscription is so young that ``origin`` is asked for nothing of the past.

        Older frames that came from another origin may still be on their way to these clients.
        """
        return origin not in self._anew and self._wanted.is_fresh(key, now_us)

    def leave(self, origin: BrokerId, key: bytes) -> None:
        """Stop following one chain, and drop its state."""
        if origin in self._origins:
            self._leave(self._origins[origin], key)

    def unwant(self, key: bytes) -> None:
        """Our clients no longer subscribe to the filter with ``key``."""
        self._wanted.since_us.pop(key, None)
        for state in self._origins.values():
            chain = self._leave(state, key)
            if chain is not None:
                state.remember(key, chain)

    def wants(self, key: bytes) -> bool:
        """Whether our clients subscribe to the filter with ``key``."""
        return key in self._wanted.since_us

    def missing_since_ms(self, origin: BrokerId) -> Millis | None:
        """Since when a frame of ``origin`` is missing here; ``None``: none is."""
        state = self._origins.get(origin)
        return state.gaps_since_ms if state is not None and state.gaps else None

    def chain(self, origin: BrokerId, key: bytes) -> Chain | None:
        """The chain of ``key`` that ``origin`` makes, if it is followed."""
        state = self._origins.get(origin)
        return state.chains.get(key) if state is not None else None

    def standing(self, keys: Set[bytes]) -> Iterator[tuple[BrokerId, int, bytes, Chain]]:
        """The followed chains of ``keys``, each with its origin, epoch and key."""
        for state in self._origins.values():
            for key in sorted(keys & state.chains.keys()):
                yield state.id, state.epoch, key, state.chains[key]

    def is_too_old(self, frame: Frame, key: bytes) -> bool:
        """Whether a frame was made before the time from which its chain is requested."""
        chain = self.chain(frame.origin, key)
        begins = chain is not None and chain.last is None
        return begins and chain is not None and frame.origin_time_us < chain.not_before_us

    @property
    def since_us(self) -> Mapping[bytes, int]:
        """Since when our clients subscribe to each key."""
        return self._wanted.since_us

    # State that survives a restart

    def positions(self) -> Positions:
        """How far each chain was delivered."""
        return {
            (origin, key): (followed.epoch, chain.last, *chain.undo)
            for origin, followed in self._origins.items()
            for key, chain in followed.chains.items()
            if chain.last is not None
        }

    def restore(self, positions: Positions, *, now_ms: Millis) -> None:
        """Continue from the positions of an earlier run of this agent."""
        newest: dict[BrokerId, int] = {}
        for (origin, _), (epoch, *_) in positions.items():
            newest[origin] = max(newest.get(origin, 0), epoch)
        for (origin, key), (epoch, last, *undo) in positions.items():
            if epoch == newest[origin]:
                self._follow(origin, epoch, key, Chain(last, last, undo=undo), now_ms)

    def expire(self, now_ms: Millis) -> None:
        """Drop origins that were silent for so long that they have dropped their frames, too."""
        for state in list(self._origins.values()):
            if now_ms - state.heard_ms > self.keep_ms:
                self._forget(state)

    # Inside

    def _follow(
        self, origin: BrokerId, epoch: int, key: bytes, chain: Chain, now_ms: Millis
    ) -> OriginState:
        state = self._origins.get(origin)
        if state is None or state.epoch != epoch:
            state = self._begin_epoch(origin, epoch, now_ms)
        state.top = max(state.top or 0, chain.target)
        self._chains += key not in state.chains
        state.chains[key] = chain
        return state

    def _leave(self, state: OriginState, key: bytes) -> Chain | None:
        chain = state.chains.pop(key, None)
        if chain is not None:
            self._chains -= 1
            state.gaps.pop(key, None)
            self._drop_held(state, key)
        return chain

    def _begin_epoch(
        self, origin: BrokerId, epoch: int, now_ms: Millis, brought_by: BrokerId = NOBODY
    ) -> OriginState:
        state = self._origins.get(origin)
        if state is not None:
            brought_by = state.begun_by
            self._forget(state)
        state = self._origins[origin] = OriginState(origin, epoch, now_ms, begun_by=brought_by)
        self._brought.setdefault(brought_by, {})[origin] = None
        return state

    def _has_room(self, brought_by: BrokerId) -> bool:
        """Whether another origin can be followed, dropping the newest one of a neighbour with more
        if needed.

        A member may invent any number of origins; those that other neighbours brought stay.
        """
        if len(self._origins) < self.origins_max:
            return True
        named = (by for by in self._brought if by != NOBODY)
        most = max(named, key=lambda by: len(self._brought[by]), default=brought_by)
        if len(self._brought.get(most, ())) <= len(self._brought.get(brought_by, ())) + 1:
            return False
        self._forget(self._origins[next(reversed(self._brought[most]))])
        return True

    def _forget(self, state: OriginState) -> None:
        self._chains -= len(state.chains)
        self.held_bytes -= sum(len(held.frame.body) for held in state.held.values())
        self._timers.clear(state.id)
        del self._origins[state.id]
        brought = self._brought[state.begun_by]
        del brought[state.id]
        if not brought:
            del self._brought[state.begun_by]

    def _look_for_gap(
        self, state: OriginState, key: bytes, now_ms: Millis, *, first_ask_ms: int = FIRST_ASK_MS
    ) -> None:
        chain = state.chains.get(key)
        if chain is None or not (chain.last is None or chain.last < chain.target):
            return
        if not state.gaps:
            state.gaps_since_ms = now_ms
            state.retry_ms, state.asked = RETRY_MIN_MS, False
        if not state.asked:
            soon_ms = first_ask_ms if chain.last is not None else 0
            self._timers.set_sooner(state.id, Millis(now_ms + soon_ms))
        elif key not in state.gaps:
            self._timers.set_sooner(state.id, Millis(now_ms + RETRY_MIN_MS))
        state.gaps[key] = None

    def _close_gap(self, state: OriginState, key: bytes) -> None:
        chain = state.chains.get(key)
        if chain is None or (chain.last is not None and chain.last >= chain.target):
            state.gaps.pop(key, None)
            if not state.gaps:
                self._timers.clear(state.id)

    def _hold(self, state: OriginState, placed: Placed) -> None:
        seq, size = placed.frame.seq, len(placed.frame.body)
        full = self.held_bytes + size > self.held_bytes_max or len(state.held) >= HELD_MAX
        if seq in state.held or full:
            return
        self.held_bytes += size
        state.held[seq] = placed
        for link in placed.links:
            state.waiting[link] = seq

    def _unhold(self, state: OriginState, seq: int) -> None:
        held = state.held.pop(seq, None)
        if held is not None:
            self.held_bytes -= len(held.frame.body)
            for link in held.links:
                if state.waiting.get(link) == seq:
                    del state.waiting[link]

    def _drop_held(self, state: OriginState, key: bytes) -> None:
        for seq in [s for s, held in state.held.items() if any(k == key for k, _ in held.links)]:
            self._unhold(state, seq)

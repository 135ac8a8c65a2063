"""What arrived on each chain, what is missing, and which origin to ask for it.

For each (origin, filter) that our clients subscribe to, we remember only the number of the last
frame delivered. A frame whose predecessor was delivered is next; an older one is a copy; a newer
one shows a gap and waits in a bounded room while the origin is asked for the frames between. A
frame of several filters is next when it is next on each of them. Since numbers only grow, the
oldest missing frame is always next on all its chains: the room empties from the front.

A chain that we first see in its middle may have begun before we subscribed, or while we were cut
off. So its origin is asked for what it made since our clients subscribed, by the origin's clock:
the frame that showed us the chain carries the time it was made, and we know for how long our
clients had been subscribed by then.

Source: docs/protocol.md section 11.
"""

from federator.protocol.custody.chains import NOBODY, RETRY_MIN_MS, Ask, Chain, OriginState, Placed
from federator.protocol.custody.doubts import Doubted, Doubts
from federator.protocol.custody.followed import Followed
from federator.protocol.forwarding.frames import KEY_BYTES, REPAIR_FLAG, Frame
from federator.protocol.messages.control import AskedChain
from federator.protocol.types import BrokerId, Millis, Now

RETRY_MAX_MS = 5_000
DOUBT_RETRY_MS = 2_000
"""Frames requested in vain for so long may never have been made."""

JUMP_MAX = 1 << 34
"""A number so far beyond all others moves no chain before its origin was asked: numbers jump by
2**32 when the origin's machine boots.
"""

SEQ_MAX = 2**63 - 1  # the greatest number that messages can carry
LOOK_BACK_US = 60_000_000
"""How much is requested again of a chain that a forged frame moved, if it cannot be rolled back."""
CHAINS_PER_ASK_MAX = 64


class Receiver(Followed):
    """The chains of one broker."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.duplicates = 0  # copies of frames that came before
        self.voids = 0  # how often an origin no longer had what we missed
        self.unfollowed = 0  # frames of origins that there was no room to follow
        self.asked = 0  # requests made
        self.doubts = Doubts()
        self._opened = 0  # how many ways to neighbours opened since our start

    # What arrives

    def arrive(
        self, placed: Placed, now: Now, *, room: bool = True, first: bool = False
    ) -> list[Placed]:
        """Take a frame on at least one followed chain; return what is due now, in order.

        Args:
            placed: Returned when it is due.
            now: Our clocks.
            room: Our broker can take it now; otherwise it is requested again later.
            first: No copy of it came before.
        """
        frame, links, seq = placed.frame, placed.links, placed.frame.seq
        state = self._origin(frame, frame.epoch, links[0].key, seq, now.ms)
        if state is None:
            if first and room and seq <= SEQ_MAX and frame.origin not in self._origins:
                self.unfollowed += 1  # it is delivered as it comes
                return [placed]
            self.duplicates += 1
            return []
        chains = state.chains
        next_everywhere, concerned = room, False
        for key, prev in links:
            chain = chains.get(key)
            if chain is None:
                if self._chains >= self.chains_max:
                    continue  # no room to follow the chain: its frames are delivered as they come
                chain = self._begin(state, key, prev, frame.origin_time_us, now.us)
            if chain.unsure or chain.way != self._opened:
                self._check(state, key, now.ms)
            last = chain.last
            # From before our clients' subscription: this chain does not count.
            if seq <= chain.begun:
                continue
            concerned = True
            if last is None or prev > last:
                next_everywhere = False
            elif seq <= last:
                # Delivered already. Chains that began later may not know it, and move past it.
                self.duplicates += 1
                if first:  # or a forged frame moved the chain past it
                    skipped = chain.before(seq) is not None
                    self._doubt(state, key, seq if skipped else last, now.ms)
                return self._pass(state, key, placed, now.ms)
            if seq > chain.target:
                chain.target = seq
        # Every chain began after it: a late copy. A chain that is not followed cannot tell.
        if not concerned and all(key in chains for key, _ in links):
            self.duplicates += 1
            if first:
                self._doubt(state, key, chains[key].begun, now.ms)
            return self._pass(state, key, placed, now.ms)
        if next_everywhere:
            return self._deliver(state, placed, now.ms)
        for key, _ in links:
            self._look_for_gap(state, key, now.ms)
        # Without room at our broker nothing is held: it is requested again, in small parts.
        if room:
            self._hold(state, placed)
        return []

    def tail(self, placed: Placed, now: Now) -> None:
        """Handle a tail: the origin names the last frame (``prev``) of each of some chains.

        A tail does not begin a chain for clients that have just come: the last frame may be theirs,
        and still be on a longer way than this tail. The origin will repeat it.
        """
        frame = placed.frame
        epoch = int.from_bytes(frame.body, "big")  # of the numbers that the tail names
        for key, head in placed.links:
            state = self._origin(frame, epoch, key, head, now.ms)
            if state is None:
                return
            chain = state.chains.get(key)
            if chain is None:
                if self._chains >= self.chains_max or self.is_fresh(state.id, key, now.us):
                    continue
                chain = self._begin(state, key, head, frame.origin_time_us, now.us)
            if chain.unsure or chain.way != self._opened:
                self._check(state, key, now.ms)
            # The tail is late, or a forged frame moved the chain past it.
            if head < (chain.last or 0):
                self._doubt(state, key, chain.last or 0, now.ms)
            chain.target = max(chain.target, head)
            self._look_for_gap(state, key, now.ms, first_ask_ms=0)

    def skip(self, frame: Frame, now_ms: Millis) -> list[Placed]:
        """Skip numbers of the first chain of ``frame``, up to its own; return the frames that
        follow.

        The origin has nothing for us there.
        """
        if frame.origin not in self._origins:
            return []
        key, through = frame.keys[:KEY_BYTES], frame.seq
        state = self._origin(frame, frame.epoch, key, through, now_ms)
        chain = state.chains.get(key) if state is not None else None
        if state is None or chain is None or (chain.last is not None and through <= chain.last):
            return []
        # "Nothing since that time" answers only a request for just that time.
        since_us = int.from_bytes(frame.chain, "big")
        if since_us and (chain.last is not None or since_us != chain.not_before_us):
            return []
        if chain.last is not None:
            self.voids += 1
        else:
            chain.begun = through = max(through, chain.begun)
        chain.move(through, state.brought_by)
        chain.target = max(chain.target, through)
        self._close_gap(state, key)
        done: list[Placed] = []
        for seq in sorted(state.held):
            held = state.held.get(seq)
            if held is None:
                continue
            if state.is_stale(held):
                self._unhold(state, seq)
            elif state.is_next(held):
                self._unhold(state, seq)
                done += self._deliver(state, held, now_ms)
        return done

    def on_word(self, placed: Placed, now: Now) -> list[Doubted]:
        """Handle the origin's answer to our doubts; return the numbers that it never made.

        The number of the frame is the greatest that the origin made. Each link has the greatest
        number of the chain up to the doubted one (``prev``); if that is beyond the doubted one,
        everything up to ``prev`` was dropped, the doubted number included.
        """
        frame = placed.frame
        origin, top = frame.origin, frame.seq
        asked = self.doubts.answered(origin)
        state = self._origins.get(origin)
        if state is None:  # no client here wants anything of this origin
            return []
        if state.epoch != frame.epoch:
            self._begin_epoch(origin, frame.epoch, now.ms).top = top
            return []
        state.top = top
        lies = []
        for key, number in placed.links:
            doubted, chain = asked.get(key), state.chains.get(key)
            if doubted is None or chain is None:
                continue
            if doubted in chain.unsure:
                chain.unsure.remove(doubted)
            if doubted.back_to is None:
                is_lie = number < doubted.number
                lie, through = doubted.number, number
            else:  # the chain went on to a forged number, or the skipped ones are gone
                is_lie = doubted.back_to < number <= doubted.number
                lie, through = chain.last or 0, number - 1
            if is_lie:
                lies.append(doubted)
                age_us = LOOK_BACK_US
                if not chain.undo:  # it dates from an earlier run; its clients may come only now
                    wants = self.wants(key)
                    age_us = self._wanted.age_us(key, now.us) if wants else self.keep_ms * 1_000
                since_us = max(1, frame.origin_time_us - age_us)
                chain.take_back(through, doubted.back_to, not_before_us=since_us)
                if chain.target <= lie:
                    chain.target = max(number, chain.last or 0)
                self._drop_held(state, key)
                state.gaps.pop(key, None)
            else:
                chain.target = max(chain.target, number)
            self._look_for_gap(state, key, now.ms)
            if is_lie and key in state.gaps:  # nothing else will close this gap
                state.retry_ms = RETRY_MIN_MS
                self._timers.set(origin, now.ms)
            self._check(state, key, now.ms)
        return lies

    def answered(self, origin: BrokerId, *, now_ms: Millis) -> None:
        """The last frame of an answer came: ask for the rest, if there is any."""
        state = self._origins.get(origin)
        if state is not None and state.gaps:
            self._timers.set(origin, now_ms)

    # What to ask for

    def next_deadline_ms(self) -> Millis | None:
        return self._timers.next_deadline_ms()

    def asks(self, now_ms: Millis) -> list[Ask]:
        asks: list[Ask] = []
        for origin in self._timers.pop_due(now_ms):
            state = self._origins.get(origin)
            if state is None or not state.gaps:
                continue
            chains = [
                AskedChain(key, chain.last or 0, chain.not_before_us if chain.last is None else 0)
                for key in state.gaps
                for chain in (state.chains[key],)
            ]
            first = tuple(sorted(chains, key=lambda asked: asked.after)[:CHAINS_PER_ASK_MAX])
            asks.append(Ask(origin, state.epoch, first))
            self.asked += 1
            state.asked = True
            self._timers.set(origin, Millis(now_ms + state.retry_ms))
            for asked in first if state.retry_ms >= DOUBT_RETRY_MS else ():
                doubted = Doubted(state.chains[asked.key].target, NOBODY)
                self.doubts.doubt(origin, asked.key, doubted, now_ms=now_ms)
            state.retry_ms = min(2 * state.retry_ms, RETRY_MAX_MS)
        return asks

    def hasten(self, now_ms: Millis) -> None:
        """Ask for everything that is missing now: a way may be open again."""
        self._opened += 1
        for origin, state in self._origins.items():
            if state.gaps:
                state.retry_ms = RETRY_MIN_MS
                self._timers.set_sooner(origin, now_ms)

    # Inside

    def _origin(
        self, frame: Frame, epoch: int, key: bytes, number: int, now_ms: Millis
    ) -> OriginState | None:
        """The state of the origin of ``frame``; ``None`` when the origin must confirm the frame
        first, or there is no room for another origin.

        Any epoch and number is accepted of a new origin only.
        """
        origin, brought_by = frame.origin, frame.sender
        if number > SEQ_MAX:
            return None
        state = self._origins.get(origin)
        if state is None:
            if not self._has_room(brought_by):
                return None
            state = self._begin_epoch(origin, epoch, now_ms, brought_by)
        if state.top is None:
            state.top = number
        if epoch != state.epoch or number > state.top + JUMP_MAX:
            self.doubts.doubt(origin, key, Doubted(number, brought_by), now_ms=now_ms)
            return None
        if number > state.top:
            state.top = number
        state.heard_ms = now_ms
        state.brought_by = brought_by
        return state

    def _doubt(self, state: OriginState, key: bytes, number: int, now_ms: Millis) -> None:
        chain = state.chains[key]
        doubted = Doubted(number, chain.brought_by, chain.before(number))
        self.doubts.doubt(state.id, key, doubted, now_ms=now_ms)

    def _check(self, state: OriginState, key: bytes, now_ms: Millis) -> None:
        chain = state.chains[key]
        if chain.way != self._opened:
            chain.look_at_steps(self._opened)
        if chain.unsure:
            self.doubts.doubt(state.id, key, chain.unsure[-1], now_ms=now_ms)

    def _begin(self, state: OriginState, key: bytes, prev: int, made_us: int, now_us: int) -> Chain:
        self._chains += 1
        age_us = self._wanted.age_us(key, now_us)
        known_beginning = prev == 0 or self.is_fresh(state.id, key, now_us)
        not_before_us = max(1, made_us - age_us, self._anew_us(state.id, made_us, now_us))
        chain = Chain(prev if known_beginning else None, prev, not_before_us)
        chain.begun = state.former.pop(key, 0)
        if known_beginning:
            chain.begun = max(prev, chain.begun)
        state.chains[key] = chain
        return chain

    def _anew_us(self, origin: BrokerId, made_us: int, now_us: int) -> int:
        """By the clock of ``origin``: nothing made before then is requested."""
        since_us, by_its_clock = self._anew.get(origin, (0, True))
        return since_us if by_its_clock else made_us - max(0, now_us - since_us)

    def _pass(self, state: OriginState, by: bytes, placed: Placed, now_ms: Millis) -> list[Placed]:
        """Go on after a frame on chains that began later: the chain ``by`` shows that it was
        delivered, unless that is in doubt.
        """
        if self.doubts.is_about(state.id, by):
            return []
        seq = placed.frame.seq
        for key, prev in placed.links:
            chain = state.chains.get(key)
            if chain is not None and chain.last is not None and prev <= chain.last < seq:
                chain.move(seq, state.brought_by)
                self._close_gap(state, key)
        done: list[Placed] = []
        for follower in self._followers(state, placed):
            done += self._deliver(state, follower, now_ms)
        return done

    def _deliver(self, state: OriginState, placed: Placed, now_ms: Millis) -> list[Placed]:
        """Deliver a frame, and after it those that waited for it."""
        chains, gaps = state.chains, state.gaps
        done: list[Placed] = []
        due = [placed]
        repaired = placed.frame.flags & REPAIR_FLAG
        while due:
            placed = due.pop()
            seq = placed.frame.seq
            done.append(placed)
            for key, _ in placed.links:
                chain = chains.get(key)
                if chain is not None and (chain.last is None or chain.last < seq):
                    chain.move(seq, state.brought_by)
            if state.held:
                self._unhold(state, seq)
                due += self._followers(state, placed)
                due.sort(key=lambda waiting: -waiting.frame.seq)
            for key in [key for key, _ in placed.links if key in gaps]:
                self._close_gap(state, key)
        if gaps and repaired:  # the answer is on its way
            state.retry_ms = RETRY_MIN_MS
            self._timers.set(state.id, Millis(now_ms + RETRY_MIN_MS))
        return done

    def _followers(self, state: OriginState, placed: Placed) -> list[Placed]:
        """The held frames that become due with ``placed``."""
        due: list[Placed] = []
        for key, _ in placed.links:
            follower = state.waiting.pop((key, placed.frame.seq), None)
            held = state.held.get(follower) if follower is not None else None
            if held is not None and state.is_next(held):
                self._unhold(state, held.frame.seq)
                due.append(held)
        return due

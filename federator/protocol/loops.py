"""A forgotten bridge beside the federation, noticed and made harmless.

Somebody once bridged two brokers that now have agents. What we deliver at one comes back through
the bridge, is published at the other as if by a client, federated again, and so on for ever. A
broker does not say who published, so a publication that comes back looks like one that a client
repeats: a sensor may well say 21.5 ten times a second.

What tells them apart is **cause**. A copy that circulates comes back because we let it go, and
when we let it go. So a topic on which the same publication keeps coming quickly is put to the test:

1. **Hold** everything on it for a random time, several times as long as the suspected way round.
   All circulating copies are then in our hands, and whatever a client publishes joins them.
2. **Release** what was held, in order, and **listen** for as long as one way round. Circulating
   copies are back, nearly all of them. A client that repeats itself at a steady pace publishes in
   that time a fraction of what it published during the hold.
3. Do so again: a client whose bursts happen to fall into the one short moment that chance chose
   will not do it ``ROUNDS`` times in a row. One failure clears the topic, for longer each time.

A loop once established returns each publication that enters the federation exactly once. So
we keep accounts: what goes in is expected back once, within ``window_ms``, and what comes while
one is expected is not let in again. If a client publishes the same in between, one of two equal
publications is stopped: nobody can tell which. The established loop is put to the same test now
and then, and the accounts are closed when publications do not come back any more.

Nothing is dropped before a loop is established, and nothing is held where no bridge is known.

Source: docs/protocol.md, section 12. The test is the "randomised intervention" of causal
inference (J. Pearl, Causality, 2009, chapter 3): act at random, and see whether the effect follows.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum

from federator.protocol.types import Millis

ROUNDS = 5
"""Tests in a row that a loop must stand."""

HOLD_MIN, HOLD_MORE = 4.0, 4.0
"""A hold lasts for between 4 and 8 times the suspected way round."""

RETURNED_SHARE = 0.9
"""Of what was released must be back; a bridge under load may lose some."""

WAY_MS_MIN = 30
"""Nothing shorter is listened for: the machine has other things to do."""

SILENT_ROUNDS_MAX = 3
"""Tests without any publication after which a suspicion is given up."""

FAILED_RETESTS_MAX = 2
"""Of an established loop in a row, after which it is gone."""

RETEST_MS = 30_000
QUIET_MS_MAX = 600_000
"""An established loop in which nothing was published for so long is forgotten."""

CLEARED_MS_MIN, CLEARED_MS_MAX = 10_000, 3_600_000
"""For how long a cleared topic is not suspected again; doubles."""

SIGHTS_MAX = 8_192
"""Publications remembered at a time."""

SUSPECTS_MAX, CLEARED_MAX, LOOPS_MAX = 1_024, 8_192, 8_192
"""Topics. Suspicions beyond wait, the rest forgets the oldest."""

EXPECTED_MAX = 65_536
"""Publications expected back; those beyond are let in once more."""

Digest = Hashable
"""Of the topic and payload of a publication."""


class Fate(Enum):
    """What becomes of a publication of our clients."""

    PASS = "pass"
    HOLD = "hold"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class LoopParameters:
    """See ``[loops]`` in docs/configuration.md."""

    turnaround_ms_max: int = 80
    repeats_min: int = 8
    window_ms: int = 2_000


@dataclass(frozen=True, slots=True)
class Release:
    """Tell ``on_released`` of everything held, in order, and pass it on."""


@dataclass(frozen=True, slots=True)
class LoopFound:
    """Publications on ``topic`` come back, within ``within_ms`` after they went in."""

    topic: str
    within_ms: int


@dataclass(frozen=True, slots=True)
class LoopGone:
    """Publications on ``topic`` do not come back any more."""

    topic: str
    dropped: int


LoopEffect = Release | LoopFound | LoopGone


@dataclass(slots=True)
class _Sight:
    at_ms: Millis
    repeats: int = 0
    gap_ms: int = 0  # the longest within ``repeats``


@dataclass(slots=True)
class _Trial:
    """A topic under test, or an established loop."""

    way_ms: int
    passed: int = 0
    failed: int = 0
    silent: int = 0
    held: int = 0
    back: int = 0
    due: Counter[Digest] = field(default_factory=Counter)
    dropped: int = 0
    last_ms: Millis = Millis(0)
    found: bool = False


class _Phase(Enum):
    IDLE = 0
    HOLDING = 1
    LISTENING = 2


class LoopDetector:
    """Decides about each publication that our clients bring in.

    Args:
        parameters: See there.
        chance: Uniform in [0, 1), drawn anew each time.
        trusted: Whether publications on a topic are never suspected.

    Attributes:
        dropped: Publications that came back and were not let in again.
    """

    def __init__(
        self,
        parameters: LoopParameters,
        *,
        chance: Callable[[], float],
        trusted: Callable[[str], bool] = lambda topic: False,
    ) -> None:
        self.dropped = 0
        self._parameters = parameters
        self._chance = chance
        self._trusted = trusted
        self._sights: OrderedDict[Digest, _Sight] = OrderedDict()
        self._trials: dict[str, _Trial] = {}
        self._loops: OrderedDict[str, _Trial] = OrderedDict()
        self._cleared: OrderedDict[str, tuple[Millis, int]] = OrderedDict()  # until, for how long
        self._expected: OrderedDict[Digest, tuple[int, Millis]] = OrderedDict()  # how many, until
        self._phase = _Phase.IDLE
        self._tested: dict[str, _Trial] = {}
        self._way_ms = 0
        self._phase_ends_ms: Millis | None = None
        self._next_retest_ms = Millis(0)

    @property
    def loops(self) -> dict[str, int]:
        """Topics whose publications come back, and how many of these were stopped."""
        return {topic: trial.dropped for topic, trial in self._loops.items()}

    @property
    def has_loops(self) -> bool:
        """Whether ``on_delivered`` wants to know."""
        return bool(self._loops)

    @property
    def suspects(self) -> int:
        """Topics under test."""
        return len(self._trials)

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` must be called."""
        if self._phase is not _Phase.IDLE:
            return self._phase_ends_ms
        if self._trials:
            return Millis(0)
        return self._next_retest_ms if self._loops else None

    def on_intake(self, topic: str, digest: Digest, *, now_ms: Millis) -> Fate:
        """A client of ours, or a bridge, published."""
        loop = self._loops.get(topic)
        if loop is None:
            self._look(topic, digest, now_ms)
        else:
            loop.last_ms = now_ms
        tested = self._tested.get(topic) if self._tested else None
        if tested is not None and self._phase is _Phase.LISTENING and tested.due[digest] > 0:
            tested.due[digest] -= 1
            tested.back += 1
        if loop is not None and self._take_expected(digest, now_ms):
            loop.dropped += 1
            self.dropped += 1
            return Fate.DROP
        if tested is not None and self._phase is _Phase.HOLDING:
            tested.held += 1
            return Fate.HOLD
        if loop is not None:
            self._expect(digest, now_ms, more=True)
        return Fate.PASS

    def on_released(self, topic: str, digest: Digest, *, now_ms: Millis) -> None:
        """A publication that was held goes now."""
        tested = self._tested.get(topic)
        if tested is not None:
            tested.due[digest] += 1
        if topic in self._loops:
            self._expect(digest, now_ms, more=True)

    def on_delivered(self, topic: str, digest: Digest, *, now_ms: Millis) -> None:
        """We published here what came from the federation: a bridge may bring it in again."""
        if topic in self._loops:
            self._expect(digest, now_ms, more=False)

    def on_room_spent(self) -> list[LoopEffect]:
        """No more can be held: the test is off, for it was too short to tell anything."""
        for trial in self._tested.values():
            trial.silent += 1
        return self._stop_test()

    def forget_loops(self) -> list[LoopEffect]:
        """A bridge went away: nothing is taken for granted any more."""
        effects: list[LoopEffect] = [Release()] if self._phase is _Phase.HOLDING else []
        effects += [LoopGone(topic, trial.dropped) for topic, trial in self._loops.items()]
        self._loops.clear()
        self._trials.clear()
        self._tested = {}
        self._expected.clear()
        self._cleared.clear()
        self._sights.clear()
        self._phase, self._phase_ends_ms = _Phase.IDLE, None
        return effects

    def on_deadline(self, *, now_ms: Millis) -> list[LoopEffect]:
        """The instant returned by ``next_deadline_ms`` has come."""
        match self._phase:
            case _Phase.IDLE:
                self._begin_test(now_ms)
                return []
            case _Phase.HOLDING if self._ended(now_ms):
                self._phase = _Phase.LISTENING
                self._phase_ends_ms = Millis(now_ms + self._way_ms)
                return [Release()]
            case _Phase.LISTENING if self._ended(now_ms):
                effects = self._judge(now_ms)
                self._stop_test()
                return effects
        return []

    # Within

    def _ended(self, now_ms: Millis) -> bool:
        return self._phase_ends_ms is not None and now_ms >= self._phase_ends_ms

    def _look(self, topic: str, digest: Digest, now_ms: Millis) -> None:
        """Suspect ``topic`` when the same publication keeps coming quickly."""
        sight = self._sights.get(digest)
        if sight is None:
            self._sights[digest] = _Sight(now_ms)
            if len(self._sights) > SIGHTS_MAX:
                self._sights.popitem(last=False)
            return
        self._sights.move_to_end(digest)
        gap_ms, sight.at_ms = now_ms - sight.at_ms, now_ms
        if gap_ms > self._parameters.turnaround_ms_max:
            sight.repeats = sight.gap_ms = 0
            return
        sight.repeats += 1
        sight.gap_ms = max(sight.gap_ms, gap_ms)
        if sight.repeats < self._parameters.repeats_min or topic in self._trials:
            return
        sight.repeats = 0
        cleared = self._cleared.get(topic)
        if (cleared is not None and now_ms < cleared[0]) or self._trusted(topic):
            return
        if len(self._trials) < SUSPECTS_MAX:
            self._trials[topic] = _Trial(way_ms=self._within_reason(2 * sight.gap_ms))

    def _within_reason(self, way_ms: int) -> int:
        longest = max(WAY_MS_MIN, 2 * self._parameters.turnaround_ms_max)
        return min(max(way_ms, WAY_MS_MIN), longest)

    def _begin_test(self, now_ms: Millis) -> None:
        retest = bool(self._loops) and now_ms >= self._next_retest_ms
        self._tested = {**self._trials, **self._loops} if retest else dict(self._trials)
        if not self._tested:
            return
        if retest:
            self._next_retest_ms = Millis(now_ms + RETEST_MS)
        for trial in self._tested.values():
            trial.held = trial.back = 0
            trial.due.clear()
        self._way_ms = max(trial.way_ms for trial in self._tested.values())
        self._phase = _Phase.HOLDING
        hold_ms = self._way_ms * (HOLD_MIN + HOLD_MORE * self._chance())
        self._phase_ends_ms = Millis(now_ms + int(hold_ms))

    def _stop_test(self) -> list[LoopEffect]:
        held = self._phase is _Phase.HOLDING
        for topic in [t for t, trial in self._trials.items() if trial.silent > SILENT_ROUNDS_MAX]:
            del self._trials[topic]
        self._tested = {}
        self._phase, self._phase_ends_ms = _Phase.IDLE, None
        return [Release()] if held else []

    def _judge(self, now_ms: Millis) -> list[LoopEffect]:
        effects: list[LoopEffect] = []
        for topic, trial in self._tested.items():
            if not trial.held:
                trial.silent += 1
            elif trial.back >= RETURNED_SHARE * trial.held:
                trial.passed += 1
                trial.failed = trial.silent = 0
            else:
                trial.failed += 1
                trial.silent = 0
            effects += (
                self._conclude_loop(topic, trial, now_ms)
                if trial.found
                else (self._conclude_trial(topic, trial, now_ms))
            )
        return effects

    def _conclude_trial(self, topic: str, trial: _Trial, now_ms: Millis) -> list[LoopEffect]:
        if trial.failed:
            trial.passed = trial.failed = 0
            longer = self._within_reason(2 * trial.way_ms)
            if longer > trial.way_ms:
                trial.way_ms = longer
            else:
                del self._trials[topic]
                self._clear(topic, now_ms)
            return []
        if trial.passed < ROUNDS:
            return []
        del self._trials[topic]
        trial.found, trial.last_ms = True, now_ms
        if not self._loops:
            self._next_retest_ms = Millis(now_ms + RETEST_MS)
        self._loops[topic] = trial
        if len(self._loops) > LOOPS_MAX:
            self._loops.popitem(last=False)
        return [LoopFound(topic, trial.way_ms)]

    def _conclude_loop(self, topic: str, trial: _Trial, now_ms: Millis) -> list[LoopEffect]:
        if trial.failed < FAILED_RETESTS_MAX and now_ms - trial.last_ms < QUIET_MS_MAX:
            return []
        del self._loops[topic]
        return [LoopGone(topic, trial.dropped)]

    def _clear(self, topic: str, now_ms: Millis) -> None:
        _, span_ms = self._cleared.pop(topic, (Millis(0), CLEARED_MS_MIN // 2))
        span_ms = min(2 * span_ms, CLEARED_MS_MAX)
        self._cleared[topic] = Millis(now_ms + span_ms), span_ms
        if len(self._cleared) > CLEARED_MAX:
            self._cleared.popitem(last=False)

    def _expect(self, digest: Digest, now_ms: Millis, *, more: bool) -> None:
        """One copy is to come back: one more, or at least one."""
        count, until_ms = self._expected.pop(digest, (0, now_ms))
        count = 0 if until_ms < now_ms else count
        count = count + 1 if more else max(count, 1)
        self._expected[digest] = count, Millis(now_ms + self._parameters.window_ms)
        if len(self._expected) > EXPECTED_MAX:
            self._expected.popitem(last=False)

    def _take_expected(self, digest: Digest, now_ms: Millis) -> bool:
        found = self._expected.pop(digest, None)
        if found is None or found[1] < now_ms:
            return False
        count, until_ms = found
        if count > 1:
            self._expected[digest] = count - 1, until_ms
        return True


def without_repetition(topic: str) -> str:
    """``topic`` with a beginning that is repeated said once: ``up/up/up/a`` is ``up/a``.

    A bridge that adds a prefix makes the topic longer on each way round.
    """
    levels = topic.split("/")
    size = 1
    while 2 * size <= len(levels):
        if levels[:size] == levels[size : 2 * size]:
            del levels[:size]
        else:
            size += 1
    return "/".join(levels)

"""Detects a forgotten bridge beside the federation, and makes it harmless.

Before two brokers had agents, an operator may have bridged them. What we deliver at one comes back
through the bridge, is published at the other as if by a client, federated again, and so on for
ever. A broker does not tell us the publisher, so a publication that comes back looks like one that
a client repeats: a sensor may well publish 21.5 ten times a second.

The difference is **cause**. A copy that circulates comes back because we let it go, and when we let
it go. So a topic on which the same publication keeps coming quickly is put to the test:

1. **Hold** everything on it for a random time, some times as long as the suspected way round. All
   circulating copies are then in our hands, and whatever a client publishes joins them.
2. **Release** what was held, in order, and **listen** for as long as one way round. Circulating
   copies are back, nearly all of them. A client that repeats itself at a steady pace publishes in
   that time a fraction of what it published during the hold.
3. Repeat this: a client whose bursts happen to fall into the one short moment that chance chose
   will not do so ``ROUNDS`` times in a row. One failure clears the topic, for longer each time.

``LoopAccounts`` stop the copies of an established loop. If its end would not be reported, it is
tested again now and then. Nothing is dropped before a loop is established.

When one loop is established there is a bridge, and all other topics are suspects: **one** quick
repetition starts a test, even of what we delivered here, and from then on everything on the topic
is held except what a test releases. A first publication then goes round as often as its topic is
tested, not until the tests begin.

Source: docs/rules.md 3. The test is the "randomised intervention" of causal inference (J. Pearl,
Causality, 2009, chapter 3): act at random, and see whether the effect follows.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from federator.protocol.loops.accounts import Digest, LoopAccounts
from federator.protocol.loops.suspicions import Suspicions
from federator.protocol.types import Millis

ROUNDS = 5
"""Tests in a row that a loop must pass."""

ROUNDS_AGAIN = 2
"""The same when another topic is in a loop already, which makes this one likely."""

HOLD_MIN, HOLD_MORE = 2.0, 2.0
"""A hold lasts for between 2 and 4 times the suspected way round."""

RETURNED_SHARE = 0.9
"""The share of the released publications that must be back; a bridge under load may lose some."""

WAY_MS_MIN, WAY_MS_MIN_AGAIN = 30, 60
"""The shortest time to listen: the machine has other things to do. The second value applies when
one repetition is the only evidence."""

FAILED_RETESTS_MAX = 2
"""Tests in a row that an established loop must fail to count as gone."""

RETEST_MS = 30_000
"""Between tests of established loops, half as much more or less."""

SUSPECTS_MAX, LOOPS_MAX = 8_192, 65_536
"""Topics under test, and topics in loops. More suspects wait; the oldest loop is dropped."""


class Fate(Enum):
    """What to do with a publication of our clients."""

    PASS = "pass"
    HOLD = "hold"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class LoopParameters:
    """See ``[loops]`` in docs/configuration.md."""

    turnaround_ms_max: int = 250
    repeats_min: int = 8
    window_ms: int = 2_000


@dataclass(frozen=True, slots=True)
class Release:
    """Orders to call ``on_released`` for everything held, in order, and to let it pass."""


@dataclass(frozen=True, slots=True)
class LoopFound:
    """Reports that publications on ``topic`` come back, within ``within_ms``: the first loop."""

    topic: str
    within_ms: int


@dataclass(frozen=True, slots=True)
class LoopsOver:
    """Reports that nothing comes back any longer. ``dropped``: copies stopped, in total."""

    dropped: int


LoopEffect = Release | LoopFound | LoopsOver


@dataclass(slots=True)
class _Trial:
    """A topic under test, or an established loop."""

    way_ms: int
    passed: int = 0
    failed: int = 0  # in a row
    released: int = 0
    back: int = 0
    due: Counter[Digest] = field(default_factory=Counter)
    copies: Counter[Digest] = field(default_factory=Counter)  # held copies of what came back
    dropped: int = 0


class _Phase(Enum):
    IDLE = 0
    HOLDING = 1
    LISTENING = 2


class LoopDetector:
    """Decides about each publication that comes from our clients.

    Args:
        chance: Draws a number in [0, 1), another one each time.
        trusted: Whether publications on a topic are never suspected.
        retests: Whether to test loops now and then, because their end is not reported.
    """

    def __init__(
        self,
        parameters: LoopParameters,
        *,
        chance: Callable[[], float],
        trusted: Callable[[str], bool] = lambda topic: False,
        retests: Callable[[], bool] = lambda: True,
    ) -> None:
        self.dropped = 0  # publications that came back and were not let in again
        self._parameters = parameters
        self._chance, self._trusted, self._retests = chance, trusted, retests
        self._accounts = LoopAccounts(window_ms=parameters.window_ms)
        self._suspicions = Suspicions(
            gap_ms_max=parameters.turnaround_ms_max, repeats_min=parameters.repeats_min
        )
        self._suspects: dict[str, _Trial] = {}
        self._loops: OrderedDict[str, _Trial] = OrderedDict()
        self._phase = _Phase.IDLE
        self._phase_ends_ms = Millis(0)
        self._tested: dict[str, _Trial] = {}
        self._way_ms = 0
        self._next_retest_ms: Millis | None = None

    @property
    def loops(self) -> dict[str, int]:
        """Topics with publications that come back, and the number of copies stopped."""
        return {topic: trial.dropped for topic, trial in self._loops.items()}

    @property
    def loop_count(self) -> int:
        """The number of loops. While it is not 0, ``on_delivered`` must be called."""
        return len(self._loops)

    @property
    def suspects(self) -> int:
        """Number of topics under test."""
        return len(self._suspects)

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` must be called."""
        if self._phase is not _Phase.IDLE:
            return self._phase_ends_ms
        if self._suspects:
            return Millis(0)
        return self._next_retest_ms

    def on_intake(self, topic: str, digest: Digest, *, now_ms: Millis) -> Fate:
        """Decide about a publication of a client of ours, or of a bridge."""
        loop = self._loops.get(topic)
        if loop is None:
            self._suspect(topic, digest, now_ms)
        tested = self._tested.get(topic)
        returned = self._phase is _Phase.LISTENING and tested is not None and tested.due[digest] > 0
        if tested is not None and returned:
            tested.due[digest] -= 1
            tested.back += 1
        if loop is not None and self._accounts.take(digest, now_ms=now_ms):
            loop.dropped += 1
            self.dropped += 1
            return Fate.DROP
        if tested is not None and self._phase is _Phase.HOLDING:
            return Fate.HOLD
        if loop is not None:
            self._accounts.expect(digest, now_ms=now_ms)
        elif self._loops and (suspect := self._suspects.get(topic)) is not None:
            suspect.copies[digest] += returned
            return Fate.HOLD
        return Fate.PASS

    def on_released(self, topic: str, digest: Digest, *, now_ms: Millis) -> Fate:
        """Decide about a held publication; one that is released is expected back."""
        tested, loop = self._tested.get(topic), self._loops.get(topic)
        if loop is not None and loop.copies[digest] > 0:
            loop.copies[digest] -= 1
            loop.dropped += 1
            self.dropped += 1
            return Fate.DROP
        if tested is None and self._loops and topic in self._suspects:
            return Fate.HOLD  # until its own test
        if tested is not None:
            tested.due[digest] += 1
            tested.released += 1
        if loop is not None:
            self._accounts.expect(digest, now_ms=now_ms)
        return Fate.PASS

    def on_delivered(self, topic: str, digest: Digest, *, now_ms: Millis) -> None:
        """Expect a delivered publication back, if it is in a loop: a bridge may bring it in again.

        On other topics its return counts as a repetition.
        """
        if topic in self._loops:
            self._accounts.expect(digest, delivered=True, now_ms=now_ms)
        elif self._loops:
            self._suspicions.note(digest, now_ms=now_ms)

    def on_room_spent(self, *, now_ms: Millis) -> list[LoopEffect]:
        """End the test without a result, because no more can be held."""
        for topic in self._tested:
            if self._suspects.pop(topic, None) is not None:
                self._suspicions.clear(topic, now_ms=now_ms)
        return self._end_test()

    def forget_all(self) -> list[LoopEffect]:
        """Forget all loops and suspects: a bridge came or went."""
        effects = self._end_test()
        if self._loops:
            effects.append(LoopsOver(self.dropped))
        self._loops.clear()
        self._next_retest_ms = None
        self._suspects.clear()
        self._accounts.clear()
        self._suspicions.forget()
        return effects

    def on_deadline(self, *, now_ms: Millis) -> list[LoopEffect]:
        """Begin a test, listen, or judge: call at ``next_deadline_ms``."""
        if self._phase is _Phase.IDLE:
            self._begin_test(now_ms)
        elif now_ms >= self._phase_ends_ms:
            if self._phase is _Phase.HOLDING:
                self._phase = _Phase.LISTENING
                self._phase_ends_ms = Millis(now_ms + self._way_ms)
                return [Release()]
            held = bool(self._loops)  # including what came back
            effects = self._end_trials(now_ms)
            self._end_test()
            return [*effects, Release()] if held else effects
        return []

    # Helpers

    def _suspect(self, topic: str, digest: Digest, now_ms: Millis) -> None:
        has_loops = bool(self._loops)
        gap_ms = self._suspicions.see(topic, digest, now_ms=now_ms, at_once=has_loops)
        if gap_ms is None or topic in self._suspects or self._trusted(topic):
            return
        if len(self._suspects) < SUSPECTS_MAX:
            way_ms = max(2 * gap_ms, WAY_MS_MIN_AGAIN if has_loops else WAY_MS_MIN)
            self._suspects[topic] = _Trial(way_ms)

    def _begin_test(self, now_ms: Millis) -> None:
        self._tested = dict(self._suspects)
        if self._next_retest_ms is not None and now_ms >= self._next_retest_ms:
            self._plan_retest(now_ms)
            self._tested |= self._loops
        if not self._tested:
            return
        for trial in self._tested.values():
            trial.released = trial.back = 0
            trial.due.clear()
            trial.copies.clear()
        self._way_ms = max(trial.way_ms for trial in self._tested.values())
        self._phase = _Phase.HOLDING
        hold_ms = self._way_ms * (HOLD_MIN + HOLD_MORE * self._chance())
        self._phase_ends_ms = Millis(now_ms + int(hold_ms))

    def _plan_retest(self, now_ms: Millis) -> None:
        """Choose a random time for the next test, out of step with all clients."""
        self._next_retest_ms = None
        if self._loops and self._retests():
            self._next_retest_ms = Millis(now_ms + int(RETEST_MS * (0.5 + self._chance())))

    def _end_test(self) -> list[LoopEffect]:
        held = self._phase is _Phase.HOLDING
        self._tested = {}
        self._phase = _Phase.IDLE
        return [Release()] if held else []

    def _end_trials(self, now_ms: Millis) -> list[LoopEffect]:
        effects: list[LoopEffect] = []
        for topic, trial in self._tested.items():
            returned = trial.back >= RETURNED_SHARE * trial.released
            if not trial.released:  # the topic has become silent, which proves nothing
                self._suspects.pop(topic, None)
            elif topic in self._loops:
                effects += self._end_loop_trial(topic, trial, returned=returned)
            elif topic in self._suspects:  # not so a loop just dropped for new ones
                effects += self._end_suspect_trial(topic, trial, now_ms, returned=returned)
        return effects

    def _end_suspect_trial(
        self, topic: str, trial: _Trial, now_ms: Millis, *, returned: bool
    ) -> list[LoopEffect]:
        if not returned:
            del self._suspects[topic]
            self._suspicions.clear(topic, now_ms=now_ms)
            return []
        trial.passed += 1
        if trial.passed < (ROUNDS_AGAIN if self._loops else ROUNDS):
            return []
        del self._suspects[topic]
        self._loops[topic] = trial
        loop_found = LoopFound(topic, trial.way_ms)
        # The way round was long under the storm, and is short once copies are stopped.
        trial.way_ms = min(trial.way_ms, 2 * self._parameters.turnaround_ms_max)
        if len(self._loops) == 1:
            self._plan_retest(now_ms)
            return [loop_found]
        if len(self._loops) > LOOPS_MAX:
            self._loops.popitem(last=False)
        return []

    def _end_loop_trial(self, topic: str, trial: _Trial, *, returned: bool) -> list[LoopEffect]:
        trial.failed = 0 if returned else trial.failed + 1
        if trial.failed < FAILED_RETESTS_MAX:
            return []
        del self._loops[topic]
        return [] if self._loops else [LoopsOver(self.dropped)]


def without_repetition(topic: str) -> str:
    """Return ``topic`` with a repeated beginning only once: ``up/up/up/a`` becomes ``up/a``.

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

"""Loops and clients that look like loops, in a world of one detector and a clock."""

import heapq
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.protocol.loops import detection as loops
from federator.protocol.loops.detection import (
    RETEST_MS,
    ROUNDS,
    ROUNDS_AGAIN,
    Fate,
    LoopDetector,
    LoopFound,
    LoopParameters,
    LoopsOver,
    Release,
    without_repetition,
)
from federator.protocol.loops.suspicions import CLEARED_MS_MIN

PARAMETERS = LoopParameters(turnaround_ms_max=80, repeats_min=8, window_ms=2_000)


class World:
    """Clients publish at one broker; what its agent lets in comes back after ``way_ms``, if there
    is a loop.

    Attributes:
        passed: What went into the federation: (when, topic, payload).
        looping: Whether the bridge carries a topic.
        longest_hold_ms: How late a publication of a client was let in, at most.
    """

    def __init__(
        self,
        *,
        seed=1,
        way_ms=lambda chance: 12,
        looping=lambda topic: True,
        retest=True,
        **options,
    ):
        self.chance = random.Random(seed)
        self.detector = LoopDetector(
            PARAMETERS, chance=self.chance.random, retests=lambda: retest, **options
        )
        self.way_ms = way_ms
        self.looping = looping
        self.now_ms = 0
        self.passed = []
        self.longest_hold_ms = 0
        self.effects = []
        self._due = []
        self._held = []
        self._count = 0

    def publish(self, topic, payload, *, at_ms):
        self._count += 1
        heapq.heappush(self._due, (at_ms, self._count, topic, payload))

    def steady(self, topic, payload, *, every_ms, until_ms, from_ms=0):
        for at_ms in range(from_ms, until_ms, every_ms):
            self.publish(topic, payload, at_ms=at_ms)

    def run(self, until_ms):
        while True:
            deadline = self.detector.next_deadline_ms()
            next_ms = min(
                [d for d in (deadline,) if d is not None] + [x[0] for x in self._due[:1]],
                default=until_ms + 1,
            )
            if next_ms > until_ms:
                break
            self.now_ms = max(self.now_ms, next_ms)
            if deadline is not None and deadline <= self.now_ms:
                self._perform(self.detector.on_deadline(now_ms=self.now_ms))
            if self._due and self._due[0][0] <= self.now_ms:
                _, _, topic, payload = heapq.heappop(self._due)
                self._take(topic, payload)
        self.now_ms = until_ms

    def _take(self, topic, payload):
        fate = self.detector.on_intake(topic, (topic, payload), now_ms=self.now_ms)
        if fate is Fate.PASS:
            self._pass(topic, payload)
        elif fate is Fate.HOLD:
            self._held.append((self.now_ms, topic, payload))

    def _pass(self, topic, payload):
        self.passed.append((self.now_ms, topic, payload))
        if self.looping(topic):
            self.publish(topic, payload, at_ms=self.now_ms + self.way_ms(self.chance))

    def _perform(self, effects):
        for effect in effects:
            if isinstance(effect, Release):
                held, self._held = self._held, []
                for since_ms, topic, payload in held:
                    self.longest_hold_ms = max(self.longest_hold_ms, self.now_ms - since_ms)
                    digest = (topic, payload)
                    fate = self.detector.on_released(topic, digest, now_ms=self.now_ms)
                    if fate is Fate.PASS:
                        self._pass(topic, payload)
                    elif fate is Fate.HOLD:
                        self._held.append((since_ms, topic, payload))
            else:
                self.effects.append(effect)

    def passed_since(self, at_ms, topic=None):
        return [p for at, t, p in self.passed if at >= at_ms and topic in (None, t)]


def test_one_publication_that_goes_round_is_found_and_stopped_within_two_seconds():
    world = World()
    world.publish("t", "m", at_ms=0)

    world.run(2_000)

    assert world.effects == [LoopFound("t", 30)]
    assert world.detector.loop_count == 1
    before = len(world.passed)
    world.run(10_000)
    assert len(world.passed) == before, "the storm has stopped"
    assert world.detector.dropped == 1


def test_of_an_established_loop_each_publication_is_let_in_once():
    world = World()
    world.publish("t", "m", at_ms=0)
    world.run(3_000)

    for number in range(100):
        world.publish("t", str(number), at_ms=3_000 + 37 * number)
    world.run(10_000)

    assert world.passed_since(3_000) == [str(n) for n in range(100)]


def test_equal_publications_on_an_established_loop_are_let_in_as_often_as_published():
    world = World()
    world.publish("t", "m", at_ms=0)
    world.run(3_000)

    world.steady("t", "same", from_ms=3_000, every_ms=5, until_ms=4_000)
    world.run(8_000)

    assert len(world.passed_since(3_000)) == 200


def test_a_loop_under_a_client_that_keeps_publishing_is_found_too():
    world = World()
    for number in range(2_000):
        world.publish("t", str(number), at_ms=number)

    world.run(4_000)

    assert [type(effect) for effect in world.effects] == [LoopFound]
    assert set(world.passed_since(0)) == {str(n) for n in range(2_000)}


def test_loops_on_many_topics_are_told_once_and_all_broken():
    world = World()
    for number in range(300):
        world.publish(f"t/{number}", "m", at_ms=number // 10)

    world.run(10_000)
    before = len(world.passed)
    world.run(20_000)

    assert len(world.effects) == 1
    assert world.detector.loop_count == 300
    assert len(world.passed) == before


def test_a_storm_that_makes_the_way_round_long_is_broken_too():
    world = World(way_ms=lambda chance: 600 + chance.randint(0, 100))
    for number in range(1_500):
        world.publish(f"t/{number}", "m", at_ms=number // 5)

    world.run(60_000)
    before = len(world.passed)
    world.run(100_000)

    assert world.detector.loop_count == 1_500
    assert len(world.passed) == before


@pytest.mark.parametrize("way_ms", [3, 12, 40, 70])
def test_of_a_new_topic_of_a_bridge_that_is_known_to_circle_three_copies_go_round(way_ms):
    world = World(way_ms=lambda chance: way_ms, retest=False)
    world.publish("t", "m", at_ms=0)
    world.run(5_000)

    for number in range(30):
        world.publish(f"new/{number}", "m", at_ms=6_000 + 300 * number)
    world.run(60_000)

    assert world.detector.loop_count == 31
    assert world.detector.suspects == 0
    copies = [len(world.passed_since(6_000, f"new/{number}")) for number in range(30)]
    assert max(copies) <= 1 + ROUNDS_AGAIN


def test_what_clients_publish_on_a_new_topic_while_it_is_tested_arrives_once_it_is_known():
    world = World(retest=False)
    world.publish("t", "m", at_ms=0)
    world.run(5_000)

    for number in range(200):
        world.publish("new", str(number), at_ms=6_000 + 5 * number)
    world.run(20_000)

    assert set(world.passed_since(6_000, "new")) == {str(number) for number in range(200)}
    assert len(world.passed_since(6_000, "new")) <= 200 * (1 + ROUNDS_AGAIN)
    assert world._held == []


def test_what_was_delivered_here_and_comes_in_is_a_repetition_where_a_loop_is_known():
    world = World(retest=False)
    world.publish("t", "m", at_ms=0)
    world.run(5_000)

    world.detector.on_delivered("new", ("new", "m"), now_ms=6_000)

    assert world.detector.on_intake("new", ("new", "m"), now_ms=6_005) is Fate.HOLD


@pytest.mark.parametrize("every_ms", [1, 7, 12, 30, 60, 79])
@pytest.mark.parametrize("seed", range(3))
def test_beside_a_known_loop_too_a_client_that_repeats_itself_loses_nothing(every_ms, seed):
    world = World(seed=seed, looping=lambda topic: topic == "t", retest=False)
    world.publish("t", "m", at_ms=0)
    world.steady("free", "21.5", every_ms=every_ms, from_ms=5_000, until_ms=65_000)

    world.run(80_000)

    assert list(world.detector.loops) == ["t"]
    assert len(world.passed_since(0, "free")) == len(range(5_000, 65_000, every_ms))
    assert world.longest_hold_ms <= 8 * PARAMETERS.turnaround_ms_max


def test_where_the_end_of_a_loop_is_told_it_is_not_tested_again():
    world = World(retest=False)
    world.publish("t", "m", at_ms=0)

    world.run(3_000)

    assert world.detector.loop_count == 1
    assert world.detector.next_deadline_ms() is None


def test_only_topics_that_the_bridge_carries_are_broken():
    world = World(looping=lambda topic: topic == "bridged")
    world.publish("bridged", "m", at_ms=0)
    world.steady("free", "m", every_ms=10, until_ms=20_000)

    world.run(20_000)

    assert list(world.detector.loops) == ["bridged"]
    assert len(world.passed_since(0, "free")) == 2_000


@pytest.mark.parametrize("every_ms", [1, 7, 12, 30, 60, 79])
@pytest.mark.parametrize("seed", range(5))
def test_a_client_that_repeats_itself_loses_nothing_and_is_never_taken_for_a_loop(every_ms, seed):
    world = World(seed=seed, looping=lambda topic: False)
    world.steady("t", "21.5", every_ms=every_ms, until_ms=60_000)

    world.run(70_000)

    assert world.effects == []
    assert len(world.passed) == len(range(0, 60_000, every_ms))
    assert world.longest_hold_ms <= 8 * PARAMETERS.turnaround_ms_max


@given(st.integers(0, 2**32), st.integers(2, 60), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_clients_with_irregular_bursts_lose_nothing(seed, gap_ms, burst):
    world = World(seed=seed, looping=lambda topic: False)
    at_ms = 0
    while at_ms < 30_000:
        for _ in range(burst):
            world.publish("t", "on", at_ms=at_ms)
            at_ms += world.chance.randint(0, gap_ms)
        at_ms += world.chance.randint(0, 10 * gap_ms)
    wanted = world._count

    world.run(60_000)

    assert world.effects == []
    assert len(world.passed) == wanted


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(0, 30), st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_every_loop_within_the_turnaround_is_broken_and_nothing_lost(seed, way, jitter, copies):
    world = World(seed=seed, way_ms=lambda chance: way + chance.randint(0, jitter))
    for number in range(copies):
        world.publish("t", str(number), at_ms=number * 3)

    world.run(30_000)
    before = len(world.passed)
    world.run(60_000)

    assert world.detector.loop_count == 1
    assert len(world.passed) == before
    assert {p for _, _, p in world.passed} == {str(n) for n in range(copies)}


def test_a_topic_in_doubt_is_left_alone_for_longer_each_time():
    world = World(looping=lambda topic: False)
    world.steady("t", "m", every_ms=10, until_ms=100_000)
    tests = []
    begin = world.detector._begin_test
    world.detector._begin_test = lambda now_ms: (tests.append(now_ms), begin(now_ms))

    world.run(100_000)

    gaps = [later - earlier for earlier, later in pairwise(tests)]
    assert 3 < len(tests) < 10
    assert gaps == sorted(gaps)
    assert gaps[0] >= CLEARED_MS_MIN


def test_a_loop_that_ends_while_the_bridge_stays_is_noticed_by_the_next_tests():
    world = World()
    world.publish("t", "m", at_ms=0)
    world.run(3_000)
    world.looping = lambda topic: False

    world.steady("t", "21.5", from_ms=3_000, every_ms=100, until_ms=400_000)
    world.run(3_000 + 10 * RETEST_MS)

    assert [type(effect) for effect in world.effects] == [LoopFound, LoopsOver]
    since_ms = world.now_ms
    world.run(400_000)
    assert len(world.passed_since(since_ms)) == (400_000 - since_ms) // 100


def test_a_loop_that_lasts_is_not_forgotten_by_its_tests():
    world = World()
    world.steady("t", "21.5", every_ms=100, until_ms=200_000)

    world.run(200_000)

    assert [type(effect) for effect in world.effects] == [LoopFound]
    assert world.passed_since(100_000) == ["21.5"] * 1_000


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_a_loop_that_gives_way_to_another_during_its_test_is_not_judged(seed, monkeypatch):
    monkeypatch.setattr(loops, "LOOPS_MAX", 1)
    world = World(seed=seed)
    for n in range(3):
        world.steady(f"t/{n}", "21.5", every_ms=100, from_ms=7 * n, until_ms=40_000)

    world.run(40_000)

    assert world.detector.loop_count == 1


def test_when_the_bridge_goes_nothing_is_held_or_stopped_any_more():
    world = World()
    world.publish("t", "m", at_ms=0)
    world.run(3_000)
    world.publish("t", "n", at_ms=3_000)
    world.run(3_001)

    assert world.detector.forget_all() == [LoopsOver(1)]
    assert world.detector.on_intake("t", ("t", "n"), now_ms=3_002) is Fate.PASS
    assert world.detector.next_deadline_ms() is None


def test_what_is_held_when_the_bridge_goes_is_released():
    world = World(looping=lambda topic: False)
    world.steady("t", "m", every_ms=10, until_ms=200)
    world.run(100)
    assert world.detector.on_intake("t", "m", now_ms=100) is Fate.HOLD

    assert world.detector.forget_all() == [Release()]


def test_a_test_that_runs_out_of_room_proves_nothing():
    world = World()
    world.publish("t", "m", at_ms=0)
    while not world._held:
        world.run(world.now_ms + 1)

    assert world.detector.on_room_spent(now_ms=world.now_ms) == [Release()]
    assert world.detector.suspects == 0


def test_a_trusted_topic_is_never_held():
    world = World(trusted=lambda topic: topic == "t")
    world.publish("t", "m", at_ms=0)

    world.run(1_000)

    assert world.effects == []
    assert world.longest_hold_ms == 0


def test_what_was_delivered_here_is_not_let_in_when_a_bridge_brings_it():
    world = World()
    world.publish("t", "m", at_ms=0)
    world.run(3_000)

    world.detector.on_delivered("t", ("t", "n"), now_ms=3_000)
    fates = [world.detector.on_intake("t", ("t", "n"), now_ms=3_001) for _ in range(2)]

    assert fates == [Fate.DROP, Fate.PASS]


@pytest.mark.parametrize(
    ("topic", "short"),
    [
        ("up/up/up/a", "up/a"),
        ("x/y/x/y/a", "x/y/a"),
        ("a/b", "a/b"),
        ("a", "a"),
        ("a/up/up", "a/up/up"),
    ],
)
def test_a_topic_that_grows_on_each_way_round_keeps_its_key(topic, short):
    assert without_repetition(topic) == short


def test_a_loop_needs_as_many_tests_as_rounds():
    world = World()
    world.publish("t", "m", at_ms=0)
    releases = []
    perform = world._perform
    world._perform = lambda effects: (
        releases.extend(e for e in effects if e == Release()),
        perform(effects),
    )

    world.run(5_000)

    assert len(releases) == ROUNDS

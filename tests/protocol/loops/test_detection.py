"""Loops and clients that look like loops, in a world of one detector and a clock."""

import heapq
import random
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.protocol.loops import detection as loops
from federator.protocol.loops.detection import (
    ROUNDS_AGAIN,
    Fate,
    LoopDetector,
    LoopParameters,
    Release,
    without_repetition,
)
from federator.protocol.loops.suspicions import CLEARED_MS_MIN
from tests.transcripts import play, scenes

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
        self.releases = 0
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
                self.releases += 1
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


class Stage:
    """A world; ``run MS`` prints, up to then, what was let in, found and dropped.

    ``series`` publishes so many different payloads, ``steady`` the same, ``crowd`` one on each of
    so many topics, ``--each`` in a millisecond. ``ends``: the bridge carries nothing any longer.
    """

    def __init__(self):
        self._world()

    def do(self, command, *words):
        options = dict(word[2:].split("=") for word in words if word.startswith("--"))
        words = [word for word in words if not word.startswith("--")]
        return getattr(self, f"_{command.replace('-', '_')}")(*words, **options) or ()

    def _world(self, *, way="12-12", loops="all", retest="yes", trusted=None):
        least, most = map(int, way.split("-"))
        options = {} if trusted is None else {"trusted": lambda topic: topic == trusted}
        self.world = World(
            way_ms=lambda chance: least if least == most else chance.randint(least, most),
            looping=lambda topic: loops in ("all", topic),
            retest=retest == "yes",
            **options,
        )
        self.seen, self.counts = 0, (0, 0, 0)

    def _publish(self, topic, payload, at):
        self.world.publish(topic, payload, at_ms=int(at))

    def _series(self, topic, count, **when):
        for number in range(int(count)):
            at_ms = int(when["from"]) + int(when["every"]) * number
            self.world.publish(topic, str(number), at_ms=at_ms)

    def _steady(self, topic, payload, *, every, until, **when):
        begins = {"from_ms": int(when.get("from", 0))}
        self.world.steady(topic, payload, every_ms=int(every), until_ms=int(until), **begins)

    def _crowd(self, count, *, each):
        for number in range(int(count)):
            self.world.publish(f"t/{number}", "m", at_ms=number // int(each))

    def _run(self, until):
        self.world.run(int(until))
        return self._news()

    def _run_until_held(self):
        while not self.world._held:
            self.world.run(self.world.now_ms + 1)

    def _news(self):
        world, found = self.world, defaultdict(list)
        for _, topic, payload in world.passed[self.seen :]:
            found[topic].append(payload)
        self.seen = len(world.passed)
        if len(found) > 3:
            yield f"{sum(map(len, found.values()))} let in on {len(found)} topics"
        else:
            for topic, payloads in found.items():
                order = ", in order" * (payloads == sorted(payloads, key=float_or_zero))
                yield f"{topic}: {len(payloads)} let in, {len({*payloads})} different{order}"
        yield from map(str, world.effects)
        world.effects.clear()
        detector = world.detector
        counts = (detector.loop_count, detector.dropped, world.longest_hold_ms)
        if counts != self.counts:
            yield "loops {}, dropped {}, held for {} ms".format(*counts)
        self.counts = counts

    def _ends(self):
        self.world.looping = lambda topic: False

    def _intake(self, topic, payload):
        world = self.world
        yield world.detector.on_intake(topic, (topic, payload), now_ms=world.now_ms).name

    def _delivered(self, topic, payload):
        world = self.world
        world.detector.on_delivered(topic, (topic, payload), now_ms=world.now_ms)

    def _forget(self):
        return map(str, self.world.detector.forget_all())

    def _no_room(self):
        detector = self.world.detector
        yield from map(str, detector.on_room_spent(now_ms=self.world.now_ms))
        yield f"suspects {detector.suspects}"

    def _deadline(self):
        yield str(self.world.detector.next_deadline_ms())

    def _tests(self):
        yield f"{self.world.releases} tests"


def float_or_zero(payload):
    return float(payload) if payload[0].isdigit() else 0.0


@scenes(Path(__file__).with_name("detection.txt"))
def test_transcript(path, number):
    play(path, number, Stage())


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


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_a_loop_that_gives_way_to_another_during_its_test_is_not_judged(seed, monkeypatch):
    monkeypatch.setattr(loops, "LOOPS_MAX", 1)
    world = World(seed=seed)
    for n in range(3):
        world.steady(f"t/{n}", "21.5", every_ms=100, from_ms=7 * n, until_ms=40_000)

    world.run(40_000)

    assert world.detector.loop_count == 1


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

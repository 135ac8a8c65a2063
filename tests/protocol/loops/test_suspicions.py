import pytest

from federator.protocol.loops import suspicions as loop_suspicions
from federator.protocol.loops.suspicions import (
    CLEARED_MS_MAX,
    CLEARED_MS_MIN,
    STORM_REPEATS,
    Suspicions,
)


def suspicions():
    return Suspicions(gap_ms_max=100, repeats_min=3)


def seen(them, *times_ms, topic="t", digest="m"):
    return [them.see(topic, digest, now_ms=at_ms) for at_ms in times_ms]


def test_the_same_publication_that_keeps_coming_quickly_is_suspicious_by_its_longest_gap():
    assert seen(suspicions(), 0, 10, 70, 100) == [None, None, None, 60]


def test_one_slow_gap_begins_the_count_anew():
    assert seen(suspicions(), 0, 10, 20, 121, 130, 140, 150) == [*[None] * 6, 10]


def test_other_publications_do_not_count():
    them = suspicions()

    assert [them.see("t", number, now_ms=number) for number in range(50)] == [None] * 50


@pytest.mark.parametrize("times", [1, 3, 20])
def test_a_cleared_topic_is_left_alone_for_longer_each_time(times):
    them = suspicions()
    for _ in range(times):
        them.clear("t", now_ms=0)
    span_ms = min(CLEARED_MS_MIN * 2 ** (times - 1), CLEARED_MS_MAX)

    assert seen(them, *range(span_ms - 4, span_ms)) == [None] * 4
    assert seen(them, span_ms, span_ms + 1, span_ms + 2) == [None, None, 1]


def test_memory_is_bounded_and_the_oldest_gives_way(monkeypatch):
    monkeypatch.setattr(loop_suspicions, "SIGHTS_MAX", 2)
    monkeypatch.setattr(loop_suspicions, "CLEARED_MAX", 1)
    them = suspicions()
    seen(them, 0, 1, 2)
    for digest in "abc":
        them.see("t", digest, now_ms=3)
    assert len(them) == 2
    assert seen(them, 4) == [None], "m was forgotten"

    them.clear("t", now_ms=0)
    them.clear("u", now_ms=0)
    assert seen(them, 5, 6, 7)[-1] is not None, "that t was cleared was forgotten"


def test_after_forgetting_nothing_was_seen():
    them = suspicions()
    seen(them, 0, 1, 2)
    them.clear("t", now_ms=2)

    them.forget()

    assert seen(them, 3, 4, 5, 6) == [None, None, None, 1]


def storm(them, second, repetitions):
    """So many repetitions within one second, none of them suspicious by itself."""
    for number in range(repetitions // 2):
        for at_ms in (0, 400, 800):
            them.see("s", number, now_ms=1_000 * second + at_ms)


@pytest.mark.parametrize(("repetitions", "suspicious"), [(STORM_REPEATS, True), (1_000, False)])
def test_in_a_storm_longer_gaps_are_quick(repetitions, suspicious):
    them = suspicions()
    storm(them, 10, repetitions)

    found = seen(them, 10_900, 11_400, 11_900, 12_400)

    assert found[-1] is None, "the storm is over, and so is patience"
    storm(them, 13, repetitions)
    found = seen(them, 13_990, 14_300, 14_600, 14_900)
    assert (found[-1] == 310) == suspicious


def test_a_second_without_repetitions_ends_a_storm():
    them = suspicions()
    storm(them, 10, STORM_REPEATS)

    assert seen(them, 12_000, 12_300, 12_600, 12_900) == [None] * 4

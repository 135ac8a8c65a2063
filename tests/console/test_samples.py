"""What a console remembers over time: against a plain list of everything, and within its bounds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.console.samples import COARSE, FIELDS, FINE, FOLDED, POINTS_MAX, STEP_MS, Samples

BROKER = 4


def sample(value):
    return (value,) * len(FIELDS)


def filled(values, first_tick=0):
    """Samples of one broker, one each tick; ``None`` where nothing was known."""
    samples = Samples()
    for tick, value in enumerate(values, first_tick):
        samples.take({BROKER: sample(value)}, now_ms=tick * STEP_MS)
    return samples


def mean(values):
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 3) if known else None


def test_the_newest_is_last_and_what_was_not_known_is_a_gap():
    told = filled([1, None, 3]).read(BROKER, 300)

    assert told["step_ms"] == STEP_MS
    assert told["series"]["published"] == [1, None, 3]


def test_a_broker_that_is_met_later_has_gaps_before():
    samples = Samples()
    samples.take({}, now_ms=0)
    samples.take({BROKER: sample(2.0)}, now_ms=STEP_MS)

    assert samples.read(BROKER, 300)["series"]["clients"] == [None, 2]
    assert samples.read(99, 300)["series"]["clients"] == []


def test_missed_samples_are_gaps_and_a_long_sleep_begins_anew():
    samples = filled([1, 1])
    samples.take({BROKER: sample(4)}, now_ms=4 * STEP_MS)
    assert samples.read(BROKER, 300)["series"]["load"] == [1, 1, None, None, 4]

    samples.take({BROKER: sample(7)}, now_ms=(FINE + 10) * STEP_MS)
    assert samples.read(BROKER, 86_400)["series"]["load"] == [7]


def test_a_sample_is_due_once_in_a_step():
    samples = filled([1])

    assert not samples.due(STEP_MS - 1)
    assert samples.due(STEP_MS)


def test_who_is_no_longer_known_is_forgotten():
    samples = filled([1, 2])
    samples.take({}, now_ms=2 * STEP_MS)

    assert samples.read(BROKER, 300)["series"]["published"] == []


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.one_of(st.none(), st.integers(0, 100)), min_size=1, max_size=200),
    first=st.integers(0, 10 * FOLDED),
    span_s=st.sampled_from([300, 3_600]),
)
def test_up_to_an_hour_each_point_is_the_mean_of_its_samples(values, first, span_s):
    told = filled(values, first).read(BROKER, span_s)

    kept = values[-min(len(values), span_s * 1_000 // STEP_MS) :]
    fold = -(-len(kept) // POINTS_MAX)
    assert told["step_ms"] == STEP_MS * fold
    points = told["series"]["delivered"]
    assert points[::-1] == [
        mean(kept[max(0, end - fold) : end]) for end in range(len(kept), 0, -fold)
    ]


@pytest.mark.parametrize("ticks", [FINE + 1, 3 * FINE + 17, FOLDED * COARSE + 5 * FOLDED + 3])
def test_beyond_an_hour_points_are_of_five_minutes_for_a_day(ticks):
    values = [tick % 97 for tick in range(ticks)]
    told = filled(values).read(BROKER, 86_400)

    assert told["step_ms"] == STEP_MS * FOLDED
    whole = [mean(values[at : at + FOLDED]) for at in range(0, ticks, FOLDED)]
    assert told["series"]["answers"] == pytest.approx(whole[-COARSE:], abs=0.01)
    assert len(told["series"]["answers"]) <= POINTS_MAX


def test_memory_is_the_same_after_a_minute_and_after_a_day():
    short, long = filled([1] * 12), filled([1] * (FOLDED * COARSE + 1))

    def size(samples):
        rings = samples._rings[BROKER]
        return sum(len(ring) * ring.itemsize for ring in (*rings.fine, *rings.coarse))

    assert size(short) == size(long) == len(FIELDS) * (FINE + COARSE) * 4

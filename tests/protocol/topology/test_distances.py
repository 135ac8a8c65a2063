"""Whom a broker measures, and what it knows of ways."""

from federator.protocol.topology.distances import MEASURED_MAX, Distances

OTHERS = range(2, 12)


def measure_one(distances, ids, *, now_ms, round_trip_ms=7):
    chosen = distances.choose(ids, pause_ms=100, now_ms=now_ms)
    distances.on_measured(chosen, round_trip_ms)
    return chosen


def test_everybody_is_measured_in_turn_and_then_again_in_the_same_order():
    distances = Distances(1)

    measured = [measure_one(distances, OTHERS, now_ms=0) for _ in range(2 * len(OTHERS))]

    assert sorted(measured[: len(OTHERS)]) == list(OTHERS)
    assert measured[len(OTHERS) :] == measured[: len(OTHERS)]


def test_no_two_brokers_measure_in_the_same_order():
    orders = set()
    for self_id in range(100, 110):
        distances = Distances(self_id)
        orders.add(tuple(measure_one(distances, OTHERS, now_ms=0) for _ in OTHERS))

    assert len(orders) == 10


def test_one_is_measured_at_a_time_and_the_next_after_the_pause():
    distances = Distances(1)
    assert distances.may_measure(0)

    chosen = distances.choose(OTHERS, pause_ms=100, now_ms=0)
    assert not distances.may_measure(1_000)

    distances.on_measured(chosen, 7)
    assert not distances.may_measure(99)
    assert distances.may_measure(100)


def test_where_nobody_is_to_be_measured_there_is_a_pause_all_the_same():
    distances = Distances(1)

    assert distances.choose([], pause_ms=100, now_ms=0) is None

    assert not distances.may_measure(99)
    assert distances.may_measure(100)


def test_what_nobody_asked_for_is_ignored():
    distances = Distances(1)
    distances.choose([2], pause_ms=100, now_ms=0)

    distances.on_measured(3, 1)

    assert distances.far_ms(3) is None
    assert not distances.may_measure(100)


def test_who_cannot_be_reached_any_more_is_as_far_as_who_was_never_measured():
    distances = Distances(1)
    for id, round_trip_ms in ((2, 7), (3, 9), (3, None)):
        distances.choose([id], pause_ms=0, now_ms=0)
        distances.on_measured(id, round_trip_ms)

    assert [distances.far_ms(id) for id in (2, 3, 4)] == [7, None, None]


def test_what_was_measured_first_is_forgotten_first():
    distances = Distances(1)

    for id in range(MEASURED_MAX + 1):
        distances.choose([id], pause_ms=0, now_ms=0)
        distances.on_measured(id, 7)

    assert distances.far_ms(0) is None
    assert distances.far_ms(1) == 7

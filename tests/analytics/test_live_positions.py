from federator_analytics.sources.live.replay import Held, advance, between, past
from hypothesis import given
from hypothesis import strategies as st

SPOOL, OTHER = "a" * 16, "b" * 16


def test_a_first_look_reads_all_that_is_held():
    end = advance({}, [Held(3, SPOOL, 5, 9)], batches_max=None)

    assert end == {"3": {SPOOL: {"first": 5, "last": 9}}}
    assert between({}, end) == [Held(3, SPOOL, 5, 9)]


def test_what_comes_next_begins_behind_what_was_read():
    start = {"3": {SPOOL: {"first": 5, "last": 9}}}

    end = advance(start, [Held(3, SPOOL, 5, 12)], batches_max=None)

    assert between(start, end) == [Held(3, SPOOL, 10, 12)]


def test_nothing_new_is_the_same_offset_and_no_work():
    start = {"3": {SPOOL: {"first": 5, "last": 9}}}

    assert advance(start, [Held(3, SPOOL, 5, 9)], batches_max=None) == start
    assert between(start, start) == []


def test_a_trigger_takes_no_more_than_its_bound_of_each_spool():
    heads = [Held(1, SPOOL, 1, 100), Held(2, OTHER, 1, 3)]

    end = advance({}, heads, batches_max=10)

    assert between({}, end) == [Held(1, SPOOL, 1, 10), Held(2, OTHER, 1, 3)]


def test_what_is_lost_does_not_use_up_the_bound():
    start = {"1": {SPOOL: {"first": 1, "last": 10}}}

    end = advance(start, [Held(1, SPOOL, 500, 900)], batches_max=10)

    assert between(start, end) == [Held(1, SPOOL, 11, 509)]


def test_a_new_disk_is_read_from_its_beginning_and_the_old_one_is_left():
    start = {"1": {SPOOL: {"first": 1, "last": 10}}}

    end = advance(start, [Held(1, OTHER, 1, 4)], batches_max=None)

    assert between(start, end) == [Held(1, OTHER, 1, 4)]
    assert end["1"][SPOOL] == start["1"][SPOOL]


def test_an_empty_spool_is_no_position_yet():
    assert advance({}, [Held(1, SPOOL, 1, 0)], batches_max=None) == {}


def test_a_head_from_the_past_turns_nothing_back():
    start = {"1": {SPOOL: {"first": 1, "last": 10}}}

    assert advance(start, [Held(1, SPOOL, 1, 7)], batches_max=None) == start


def test_latest_passes_over_what_is_held_and_reads_what_comes():
    start = past([Held(1, SPOOL, 1, 40)])

    end = advance(start, [Held(1, SPOOL, 1, 43)], batches_max=None)

    assert between(start, end) == [Held(1, SPOOL, 41, 43)]


def test_a_latest_start_made_anew_by_a_restart_loses_nothing_of_the_first_batch():
    planned = advance(past([Held(1, SPOOL, 1, 40)]), [Held(1, SPOOL, 1, 43)], batches_max=None)

    remade = past([Held(1, SPOOL, 1, 99)])

    assert between(remade, planned) == [Held(1, SPOOL, 41, 43)]


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=20
    ),
    st.integers(1, 12),
)
def test_triggers_cover_every_batch_from_the_first_met_to_the_last_once(steps, batches_max):
    held, start, seen = {}, {}, {}
    for broker, more, dropped in steps:
        first, last = held.get(broker, (1, 0))
        last += more
        held[broker] = first, last = min(first + dropped, last + 1), last

        end = advance(
            start, [Held(b, SPOOL, *ends) for b, ends in held.items()], batches_max=batches_max
        )

        for part in between(start, end):
            numbers = range(part.first, part.last + 1)
            assert len(set(numbers) & set(range(*held[part.broker]))) <= batches_max + 1
            seen.setdefault(part.broker, []).extend(numbers)
        start = end
    for numbers in seen.values():
        assert numbers == list(range(numbers[0], numbers[-1] + 1))

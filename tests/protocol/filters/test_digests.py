import gc
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.filters import DigestedSet, digest_of, filter_key
from tests.protocol.filters.small_world import plain_filters

filter_sets = st.frozensets(plain_filters, max_size=8)


def test_a_key_is_the_64_bit_blake2b_of_the_text_on_every_machine():
    # printf sport/tennis | b2sum -l 64, and "é" in two bytes
    assert filter_key("sport/tennis") == 0x7D17BAC9D218EFAA
    assert filter_key("é") == 0xCB1ABF8BEFF3192F


def test_a_digest_is_the_xor_of_the_keys():
    assert digest_of([]) == 0
    assert digest_of(["a"]) == filter_key("a")
    assert digest_of(["a", "b"]) == digest_of(["b", "a"]) == filter_key("a") ^ filter_key("b")


@given(st.lists(st.tuples(filter_sets, filter_sets), max_size=10))
def test_a_digested_set_keeps_count_and_digest_through_any_changes(steps):
    digested = DigestedSet()
    plain: set[str] = set()

    for added, removed in steps:
        digested.apply([*added, *added], [*removed, *removed])
        plain = (plain - removed) | added

        assert digested.filters == plain
        assert digested.count == len(digested) == len(plain)
        assert digested.digest == digest_of(plain)
        assert all(filter in digested for filter in plain)
        assert all(filter not in digested for filter in removed - added)


def test_repeating_a_change_alters_nothing():
    digested = DigestedSet(["a", "b"])
    digested.apply(["c"], ["a"])
    once = digested.digest

    digested.apply(["c"], ["a"])

    assert digested.digest == once
    assert digested.filters == {"b", "c"}


def test_an_empty_set_costs_its_two_slots_only():
    emptied = DigestedSet(f"f/{i}" for i in range(1_000))
    emptied.apply(removed=[f"f/{i}" for i in range(1_000)])

    assert emptied.digest == 0
    assert room_of(emptied) is room_of(DigestedSet())
    assert sys.getsizeof(emptied) <= 64


def test_a_set_that_shrank_gives_back_its_room():
    names = [f"f/{i}" for i in range(10_000)]
    digested = DigestedSet(names)

    digested.apply(removed=names[10:])

    assert digested.filters == set(names[:10])
    assert sys.getsizeof(room_of(digested)) < 10_000


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="it looks into all dictionaries there")
def test_the_collector_of_garbage_looks_into_no_set_however_large():
    digested = DigestedSet(f"f/{i}" for i in range(10_000))

    assert not gc.is_tracked(room_of(digested))


def room_of(digested):
    """The dictionary that holds the filters."""
    (room,) = (each for each in gc.get_referents(digested) if isinstance(each, dict))
    return room

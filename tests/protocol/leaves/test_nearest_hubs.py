"""Which two hubs a leaf takes of those that take it, and when it takes others."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.leaves.nearest_hubs import (
    AGAIN_MS,
    HUBS_TAKEN,
    NearestHubs,
    SeenHub,
    best_of,
    kept_of,
)
from federator.protocol.types import BrokerId, Millis

LEAF = BrokerId(417)
A, B, C, D = map(BrokerId, (1, 2, 3, 4))
PATIENCE_MS, KEEP_MS, EXCHANGE_MS = 60_000, 1_800_000, 180_000


def seen(*told):
    """Of (id, milliseconds, leaves)."""
    return [SeenHub(*each) for each in told]


def taking(*taken, known=(A, B, C), at_ms=0):
    return NearestHubs(
        known,
        LEAF,
        taken=taken,
        patience_ms=PATIENCE_MS,
        keep_ms=KEEP_MS,
        exchange_ms=EXCHANGE_MS,
        now_ms=Millis(at_ms),
    )


def ids(hubs):
    return [each.id for each in hubs]


def test_the_nearest_two_are_taken():
    assert ids(best_of(seen((A, 90, 0), (B, 9, 50), (C, 40, 9)), LEAF)) == [B, C]


def test_of_those_about_as_near_the_least_loaded_is_taken():
    assert ids(best_of(seen((A, 10, 50), (B, 15, 9), (C, 90, 0)), LEAF)) == [B, A]


def test_up_to_some_milliseconds_all_are_near():
    assert ids(best_of(seen((A, 0.3, 50), (B, 9, 9), (C, 11, 0)), LEAF)) == [B, A]


def test_leaves_that_start_together_spread_over_equal_hubs():
    equal = seen((A, 10, 0), (B, 10, 0), (C, 10, 0))

    first = Counter(best_of(equal, BrokerId(leaf))[0].id for leaf in range(300))

    assert min(first.values()) > 60


def test_who_does_not_answer_comes_last():
    hubs = taking()

    hubs.start(seen((C, 10, 0)), Millis(0))

    assert hubs.taken == (C, A)


def test_a_leaf_with_one_hub_has_one():
    hubs = taking(known=(A,))
    hubs.start([], Millis(0))

    assert hubs.taken == (A,)
    assert not hubs.is_due({A}, Millis(EXCHANGE_MS))


def test_what_an_earlier_life_took_is_kept_and_who_is_named_no_more_is_left():
    hubs = taking(C, A)
    assert hubs.taken == (C, A)

    hubs.know((A, B), kept_of(hubs.taken, (A, B)), Millis(10))

    assert hubs.taken == (A, B)


def test_a_hub_that_is_gone_for_a_while_is_replaced_and_the_other_one_serves_on():
    hubs = taking(A, B)
    assert not hubs.is_due({A, B}, Millis(1_000))
    assert not hubs.is_due({B}, Millis(1_000 + PATIENCE_MS - 1))
    assert hubs.is_due({B}, Millis(1_000 + PATIENCE_MS))

    assert hubs.on_seen(seen((B, 10, 0), (C, 10, 0)), {B}, B, Millis(70_000))

    assert hubs.taken == (B, C)
    assert not hubs.is_due({B}, Millis(70_000 + AGAIN_MS)), "the new one has as long to come up"


def test_a_much_nearer_one_that_replaces_it_is_preferred():
    hubs = taking(A, B)
    hubs.is_due({B}, Millis(0))

    assert hubs.on_seen(seen((B, 40, 0), (C, 10, 0)), {B}, B, Millis(PATIENCE_MS))

    assert hubs.taken == (C, B)


def test_while_nobody_answers_it_looks_now_and_then():
    hubs = taking(A, B)
    now_ms = Millis(PATIENCE_MS)

    assert not hubs.on_seen(seen((B, 10, 0)), {B}, B, now_ms)

    assert hubs.taken == (A, B)
    assert not hubs.is_due({B}, Millis(now_ms + AGAIN_MS - 1))
    assert hubs.is_due({B}, Millis(now_ms + AGAIN_MS))


def test_who_lost_both_waits_while_something_may_be_kept_there():
    hubs = taking(A, B)
    hubs.is_due({A, B}, Millis(1_000))
    looked_ms = Millis(10 * PATIENCE_MS)
    assert not hubs.on_seen(seen((C, 10, 0), (D, 10, 0)), set(), A, looked_ms)

    late_ms = Millis(1_000 + KEEP_MS)
    assert hubs.on_seen(seen((C, 10, 0)), set(), A, late_ms)

    assert hubs.taken == (C, B)


def test_hubs_where_it_never_was_are_not_waited_for():
    hubs = taking()
    hubs.start([], Millis(0))
    assert hubs.taken == (A, B)
    assert hubs.is_due(set(), Millis(PATIENCE_MS))

    assert hubs.on_seen(seen((C, 10, 0)), set(), None, Millis(PATIENCE_MS))

    assert hubs.taken == (C, B)


def test_one_that_does_not_serve_is_exchanged_for_one_half_as_far():
    hubs = taking(A, B)
    up = {A, B}
    assert not hubs.is_due(up, Millis(EXCHANGE_MS - 1))
    assert hubs.is_due(up, Millis(EXCHANGE_MS))
    now_ms = Millis(EXCHANGE_MS)

    assert not hubs.on_seen(seen((A, 10, 0), (B, 20, 9), (C, 10, 0)), up, A, now_ms)
    assert not hubs.is_due(up, Millis(2 * EXCHANGE_MS - 1))
    assert hubs.on_seen(seen((A, 10, 0), (B, 21, 9), (C, 10, 0)), up, A, now_ms)

    assert hubs.taken == (A, C)


def test_the_one_that_serves_is_never_exchanged():
    hubs = taking(A, B)

    assert not hubs.on_seen(seen((A, 90, 0), (B, 10, 0), (C, 10, 0)), {A, B}, A, Millis(1))

    assert hubs.taken == (A, B)


HUBS = [BrokerId(id) for id in range(1, 7)]
SEEN = st.lists(
    st.builds(SeenHub, st.sampled_from(HUBS), st.floats(0.1, 100), st.integers(0, 50)),
    unique_by=lambda each: each.id,
)


@given(
    st.lists(st.sampled_from(HUBS), min_size=1, unique=True),
    st.lists(st.tuples(SEEN, st.sets(st.sampled_from(HUBS)), st.integers(0, 700_000))),
)
def test_whatever_it_sees_it_has_two_of_those_it_knows_and_keeps_the_one_that_serves(known, steps):
    hubs, now_ms = taking(known=known), 0
    for answers, up, wait_ms in steps:
        now_ms += wait_ms
        linked = up & {*hubs.taken}
        serving = next((hub for hub in hubs.taken if hub in linked), None)
        hubs.is_due(linked, Millis(now_ms))
        told = [each for each in answers if each.id in known]

        hubs.on_seen(told, linked, serving, Millis(now_ms))

        assert len(set(hubs.taken)) == len(hubs.taken) == min(HUBS_TAKEN, len(known))
        assert {*hubs.taken} <= {*known}
        assert serving is None or serving in hubs.taken

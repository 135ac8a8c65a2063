"""Which hub serves a leaf: who is there, at leisure the preferred one, and back far enough."""

from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.leaves.hub_choice import (
    ASLEEP_MS,
    CATCH_UP_MS,
    FIRST_WAIT_MS,
    LOOK_BACK_MS,
    TICK_MS,
    Choice,
    HubChoice,
)
from federator.protocol.types import BrokerId, Millis, Now

FIRST, SECOND = BrokerId(1), BrokerId(2)
LATE_MS, RETURN_MS = 3_000, 60_000
BACK_US = (LATE_MS + LOOK_BACK_MS) * 1_000
AT_LEISURE_US = CATCH_UP_MS * 1_000
START_US = 10**15


def at(ms):
    return Now(Millis(ms), START_US + ms * 1_000)


def choice_of(**before):
    return HubChoice(
        (FIRST, SECOND), at(0), look_back_ms=LATE_MS, return_after_ms=RETURN_MS, **before
    )


def served(by_first_ms=0):
    choice = choice_of()
    assert choice.on_link(FIRST, True, at(by_first_ms)) == Choice(FIRST, 0)
    choice.on_link(SECOND, True, at(by_first_ms))
    return choice


def goes_on(choice, from_ms, until_ms):
    """Nothing happens, and it is called when it wants to be."""
    for ms in range(from_ms, until_ms, TICK_MS):
        assert choice.on_time(at(ms)) is None


def test_a_leaf_that_starts_waits_a_little_for_the_hub_that_it_prefers():
    choice = choice_of()

    assert choice.on_link(SECOND, True, at(10)) is None
    assert choice.next_deadline_ms() == FIRST_WAIT_MS
    assert choice.on_time(at(FIRST_WAIT_MS)) == Choice(SECOND, 0)


def test_when_a_hub_dies_the_other_one_serves_from_before_that_was_noticed():
    choice = served()
    goes_on(choice, 0, 50_000)

    found = choice.on_link(FIRST, False, at(50_000))

    assert found == Choice(SECOND, at(50_000).us - BACK_US)
    assert choice.others == {FIRST}


def test_a_hub_that_was_lost_alone_is_gone_on_with():
    choice = served()
    choice.on_link(SECOND, False, at(10))

    assert choice.on_link(FIRST, False, at(20)) is None
    assert not choice.is_served
    assert choice.on_link(FIRST, True, at(30)) is None
    assert choice.is_served


def test_who_was_cut_off_looks_back_to_the_beginning_of_that():
    choice = served()
    choice.on_link(SECOND, False, at(10))
    goes_on(choice, 20, 20_000)
    choice.on_link(FIRST, False, at(20_000))

    assert choice.on_link(SECOND, True, at(80_000)) == Choice(SECOND, at(20_000).us - BACK_US)


def test_it_returns_at_leisure_and_not_when_the_preferred_hub_goes_again():
    choice = served()
    goes_on(choice, 0, 10_000)
    choice.on_link(FIRST, False, at(10_000))
    assert choice.on_link(FIRST, True, at(10_010)) is None
    goes_on(choice, 11_000, 30_000)
    choice.on_link(FIRST, False, at(30_000))
    goes_on(choice, 30_000, 40_000)
    choice.on_link(FIRST, True, at(40_000))

    goes_on(choice, 40_000, 40_000 + RETURN_MS - 1)
    assert choice.next_deadline_ms() == 40_000 + RETURN_MS
    assert choice.on_time(at(40_000 + RETURN_MS - 1)) is None
    due = at(40_000 + RETURN_MS)
    assert choice.on_time(due) == Choice(FIRST, due.us - AT_LEISURE_US)


def test_it_returns_at_once_when_told_to():
    choice = served()
    assert choice.return_now(at(5)) is None
    goes_on(choice, 10, 10_000)
    choice.on_link(FIRST, False, at(10_000))
    assert choice.return_now(at(11_000)) is None
    goes_on(choice, 11_000, 40_000)
    choice.on_link(FIRST, True, at(40_000))

    assert choice.return_now(at(41_000)) == Choice(FIRST, at(41_000).us - AT_LEISURE_US)


def test_what_is_known_to_be_missing_is_looked_back_for_however_old_it_is():
    missing = {FIRST: at(20_000).us}
    choice = choice_of(missing_since_us=lambda hub, now: missing.get(hub, 0))
    choice.on_link(FIRST, True, at(0))
    choice.on_link(SECOND, True, at(0))
    goes_on(choice, 0, 50_000)

    found = choice.on_link(FIRST, False, at(50_000))

    assert found == Choice(SECOND, at(20_000).us - BACK_US)
    missing.clear()
    choice.on_link(FIRST, True, at(60_000))
    goes_on(choice, 50_000, 80_000)
    found = choice.on_link(SECOND, False, at(80_000))
    assert found == Choice(FIRST, at(80_000).us - BACK_US)


def test_what_a_hub_could_not_make_up_for_yet_is_looked_back_for_at_the_next():
    choice = served()
    goes_on(choice, 0, 10_000)
    choice.on_link(FIRST, False, at(10_000))
    choice.on_link(FIRST, True, at(11_000))
    goes_on(choice, 11_000, 12_000)

    found = choice.on_link(SECOND, False, at(12_000))

    assert found == Choice(FIRST, at(10_000).us - BACK_US)
    goes_on(choice, 12_000, 12_000 + CATCH_UP_MS)
    choice.on_link(SECOND, True, at(12_000 + CATCH_UP_MS))
    late = at(12_000 + CATCH_UP_MS + 1)
    assert choice.on_link(FIRST, False, late) == Choice(SECOND, late.us - BACK_US)


def test_who_slept_looks_back_to_before_that():
    choice = served()
    goes_on(choice, 0, 30_000)
    asleep = at(30_000 - TICK_MS)
    woken_ms = asleep.ms + ASLEEP_MS + 1

    assert choice.on_link(FIRST, False, at(woken_ms)) == Choice(SECOND, asleep.us - BACK_US)


def test_after_a_restart_it_goes_on_where_it_was():
    since_us = at(-90_000).us
    before = {"served_by": SECOND, "served_since_us": since_us}
    choice = choice_of(**before, served_until_us=at(-60_000).us)
    choice.on_link(FIRST, True, at(10))

    found = choice.on_link(SECOND, True, at(20))

    assert found == Choice(SECOND, since_us, resumes=True), "the hub may not have heard of it yet"


def test_after_a_restart_without_its_hub_it_looks_back_to_when_that_served():
    choice = choice_of(served_by=SECOND, served_until_us=at(-60_000).us)
    choice.on_link(FIRST, True, at(10))

    assert choice.on_time(at(FIRST_WAIT_MS)) == Choice(FIRST, at(-60_000).us - BACK_US)


def test_after_a_restart_with_other_hubs_it_looks_back_as_if_its_own_had_died():
    choice = choice_of(served_by=BrokerId(3), served_until_us=at(-60_000).us)
    choice.on_link(SECOND, True, at(10))

    assert choice.on_time(at(FIRST_WAIT_MS)) == Choice(SECOND, at(-60_000).us - BACK_US)


def test_other_hubs_that_are_named_count_from_then_on():
    choice = served()
    choice.prefer((BrokerId(3), SECOND))
    goes_on(choice, 0, 5_000)

    assert choice.on_link(FIRST, False, at(5_000)) == Choice(SECOND, at(5_000).us - BACK_US)


@given(st.lists(st.tuples(st.sampled_from((FIRST, SECOND)), st.booleans(), st.integers(0, 90_000))))
def test_whoever_is_there_serves_and_nobody_else(steps):
    choice, up, now_ms = choice_of(), set(), FIRST_WAIT_MS
    for hub, is_up, wait_ms in steps:
        now_ms += wait_ms
        before = choice.hub
        (up.add if is_up else up.discard)(hub)
        found = choice.on_link(hub, is_up, at(now_ms))
        assert (found is not None) == (choice.hub != before) or before is None
        if up:
            assert choice.is_served
            assert choice.hub in up
        if found is not None and found.since_us:
            assert found.since_us <= at(now_ms).us - BACK_US

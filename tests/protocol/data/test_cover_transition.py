"""Orders of a transition, one by one."""

import pytest

from federator.protocol.data.cover_transition import (
    MARKS_MAX,
    CoverTransition,
    Mark,
    Stage,
    Subscribe,
    Unsubscribe,
    sent_first,
)
from federator.protocol.filters import CoverChange


def connected():
    transition = CoverTransition()
    transition.on_up(identifiers=True, session_present=False)
    return transition


def change(transition, subscribe=(), unsubscribe=()):
    return transition.change(CoverChange(tuple(subscribe), tuple(unsubscribe)))


def test_overlapping_filters_arrive_before_others_retire_and_end_without_identifier():
    transition = connected()

    arriving = change(transition, ["a/#"], ["a/b", "a/c"])
    retiring = transition.on_mark(1, answered=True)
    plain = transition.on_mark(2, answered=True)
    assert transition.marked
    steady = transition.on_mark(3, answered=True)

    assert arriving == [Subscribe(("a/#",), 1), Mark(1)]
    assert retiring == [Unsubscribe(("a/b", "a/c")), Mark(2)]
    assert plain == [Subscribe(("a/#",)), Mark(3)]
    assert (steady, transition.stage, transition.marked) == ([], Stage.STEADY, False)


def test_filters_that_overlap_nothing_that_leaves_change_at_once():
    transition = connected()

    assert change(transition, ["c"], ["d"]) == [Subscribe(("c",)), Unsubscribe(("d",))]
    assert change(transition, ["d/#"]) == [Subscribe(("d/#",))]  # d has left for good

    change(transition, ["a/#"], ["a/b"])
    assert change(transition, ["e"]) == [Subscribe(("e",))]
    for number in (1, 2, 3):
        transition.on_mark(number, answered=True)
    assert change(transition, [], ["a/#"]) == [Unsubscribe(("a/#",))]
    assert change(transition, ["a/b"]) == [Subscribe(("a/b",))]  # the old one has left for good


def test_changes_that_overlap_wait_for_the_transition_and_cancel_each_other():
    transition = connected()
    change(transition, ["a/#"], ["a/b"])

    assert change(transition, ["a/b"], ["a/#"]) == []
    assert change(transition, ["a/+"], ["a/b"]) == []
    transition.on_mark(1, answered=True)
    transition.on_mark(2, answered=True)

    assert transition.on_mark(3, answered=True) == [Subscribe(("a/+",), 2), Mark(4)]


def test_a_mark_of_an_earlier_stage_ends_nothing():
    transition = connected()
    change(transition, ["a/#"], ["a/b"])
    assert transition.on_silence() == [Mark(2)]
    transition.on_mark(1, answered=True)

    assert transition.on_mark(2, answered=True) == []
    assert transition.stage is Stage.RETIRING


def test_a_mark_that_overtook_what_it_should_follow_is_sent_again():
    transition = connected()
    change(transition, ["a/#"], ["a/b"])

    assert transition.on_mark(1, answered=False) == [Mark(2)]
    assert transition.stage is Stage.ARRIVING


def test_a_connection_that_finds_its_session_waits_for_what_was_queued():
    transition = CoverTransition()

    resuming = transition.on_up(identifiers=True, session_present=True)

    assert (resuming, transition.stage, transition.marked) == ([Mark(1)], Stage.RESUMING, True)
    assert change(transition, ["a/b"]) == [Subscribe(("a/b",))]
    assert change(transition, ["a/#"], ["a/b"]) == []
    assert transition.on_mark(1, answered=True) == [Subscribe(("a/#",), 1), Mark(2)]


def test_without_marks_every_stage_ends_but_identifiers_are_expected_on():
    transition = connected()
    change(transition, ["a/#"], ["a/b"])

    orders = [order for _ in range(3 * MARKS_MAX) for order in transition.on_silence()]

    assert [order for order in orders if not isinstance(order, Mark)] == [
        Unsubscribe(("a/b",)),
        Subscribe(("a/#",)),
    ]
    assert (transition.stage, transition.marked, transition.given_up) == (Stage.STEADY, True, 3)


MANY = tuple(f"a/{number:04}" for number in range(1_000))


@pytest.mark.parametrize(("few", "many"), [(("a/#",), MANY), (MANY, ("a/#",))])
def test_very_many_filters_take_small_steps_and_what_leaves_stands_until_they_all_do(few, many):
    transition = CoverTransition(at_once=100)
    transition.on_up(identifiers=True, session_present=False)
    standing = {}
    mark = perform(change(transition, few), standing)
    while transition.unfinished:
        perform(transition.go_on(), standing)
    assert standing == dict.fromkeys(few)

    orders = change(transition, many, few)
    for _ in range(100):
        mark = perform(orders, standing) or mark
        assert transition.waits or set(many) <= standing.keys()
        assert set(few) <= standing.keys() or set(many) <= standing.keys()
        if transition.unfinished:
            orders = transition.go_on()
        elif transition.stage is Stage.STEADY:
            break
        else:
            orders = transition.on_mark(mark, answered=True)

    assert standing == dict.fromkeys(many)
    assert not transition.waits
    assert not transition.marked


def perform(orders, standing):
    """Do what a small step orders; returns the number of its mark."""
    mark = None
    altered = 0
    for order in orders:
        match order:
            case Subscribe(filters, identifier):
                standing.update(dict.fromkeys(filters, identifier))
                altered += len(filters)
            case Unsubscribe(filters):
                for filter in filters:
                    del standing[filter]
                altered += len(filters)
            case Mark(number):
                mark = number
    assert altered <= 100
    return mark


def test_what_was_wanted_while_much_waits_is_wanted_in_the_end_also_when_the_connection_goes():
    transition = CoverTransition(at_once=100)
    transition.on_up(identifiers=True, session_present=False)
    standing = {}
    perform(change(transition, ["a/#"]), standing)
    perform(change(transition, MANY, ["a/#"]), standing)
    for _ in range(25):  # in the middle of what arrives
        perform(transition.go_on(), standing)
    assert transition.stage is Stage.ARRIVING

    perform(change(transition, ["b"], MANY[-1:]), standing)
    perform(transition.on_down(), standing)
    while transition.unfinished:
        assert {"a/#"} <= standing.keys() or {*MANY[:-1]} <= standing.keys()
        perform(transition.go_on(), standing)

    assert set(standing) == {*MANY[:-1], "b"}


def test_the_order_of_copies_is_that_of_mosquittos_tree():
    in_order = ["a/b/#", "a/b", "a/+/#", "a/+", "a/#", "+/b/#", "+/b", "+/+", "+/#", "#"]

    for index, earlier in enumerate(in_order):
        for later in in_order[index + 1 :]:
            assert sent_first(earlier, later)
            assert not sent_first(later, earlier)

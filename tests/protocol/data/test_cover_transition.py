"""Orders of a transition, one by one."""

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


def test_the_order_of_copies_is_that_of_mosquittos_tree():
    in_order = ["a/b/#", "a/b", "a/+/#", "a/+", "a/#", "+/b/#", "+/b", "+/+", "+/#", "#"]

    for index, earlier in enumerate(in_order):
        for later in in_order[index + 1 :]:
            assert sent_first(earlier, later)
            assert not sent_first(later, earlier)

"""Orders of a transition, one by one."""

from pathlib import Path

import pytest

from federator.protocol.data import cover_transition
from federator.protocol.data.cover_transition import (
    CoverTransition,
    Mark,
    Subscribe,
    Unsubscribe,
    sent_first,
)
from federator.protocol.filters import CoverChange
from tests.transcripts import play, scenes


class Stage:
    """A transition: prints its orders, and what changes of its state.

    ``change`` takes ``+FILTER`` and ``-FILTER``; ``mark NUMBER`` came back, ``--early`` before the
    broker answered; ``silence TIMES`` prints orders but for marks.
    """

    def __init__(self):
        self.transition = CoverTransition()

    def do(self, command, *words):
        before = self._state()
        orders = self._obey(command, words)
        yield from map(printed, orders)
        if (state := self._state()) != before:
            yield state

    def _state(self):
        transition = self.transition
        marked = ", identifiers" * transition.marked
        given_up = f", {transition.given_up} given up" if transition.given_up else ""
        stage = "resuming " * transition.resuming + transition.stage.name.lower()
        return stage + marked + given_up

    def _obey(self, command, words):
        transition = self.transition
        match command, words:
            case "up", options:
                return transition.on_up(identifiers=True, session_present=bool(options))
            case "down", []:
                transition.on_down()
                return []
            case "change", filters:
                return change(transition, *([f[1:] for f in filters if f[0] == s] for s in "+-"))
            case "mark", [number, *early]:
                return transition.on_mark(int(number), answered=not early)
            case "silence", []:
                return transition.on_silence()
            case "silence", [times]:
                orders = [order for _ in range(int(times)) for order in transition.on_silence()]
                return [order for order in orders if not isinstance(order, Mark)]
        raise AssertionError(command)


def printed(order):
    match order:
        case Subscribe(filters, None):
            return " ".join(["+", *filters])
        case Subscribe(filters, identifier):
            return " ".join(["+", *filters, "as", str(identifier)])
        case Unsubscribe(filters):
            return " ".join(["-", *filters])
        case Mark(number):
            return f"mark {number}"
    raise AssertionError(order)


def change(transition, subscribe=(), unsubscribe=()):
    return transition.change(CoverChange(tuple(subscribe), tuple(unsubscribe)))


@scenes(Path(__file__).with_name("cover_transition.txt"))
def test_transcript(path, number):
    play(path, number, Stage())


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
        elif transition.stage is cover_transition.Stage.STEADY:
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


def test_a_transition_goes_on_over_the_next_connection():
    transition = CoverTransition(at_once=100)
    transition.on_up(identifiers=True, session_present=False)
    standing = {}
    perform(change(transition, ["a/#"]), standing)
    perform(change(transition, MANY, ["a/#"]), standing)
    for _ in range(25):  # in the middle of what arrives
        perform(transition.go_on(), standing)
    assert transition.stage is cover_transition.Stage.ARRIVING

    perform(change(transition, ["b"], MANY[-1:]), standing)
    transition.on_down()
    while transition.unfinished:
        perform(transition.go_on(), standing)
    assert {"a/#", "b"} <= standing.keys()

    mark = perform(transition.on_up(identifiers=True, session_present=False), standing)
    while transition.unfinished or transition.stage is not cover_transition.Stage.STEADY:
        assert "a/#" in standing or set(MANY[:-1]) <= standing.keys()
        orders = (
            transition.go_on() if transition.unfinished else transition.on_mark(mark, answered=True)
        )
        mark = perform(orders, standing) or mark

    assert standing == dict.fromkeys((*MANY[:-1], "b"))


def test_the_order_of_copies_is_that_of_mosquittos_tree():
    in_order = ["a/b/#", "a/b", "a/+/#", "a/+", "a/#", "+/b/#", "+/b", "+/+", "+/#", "#"]

    for index, earlier in enumerate(in_order):
        for later in in_order[index + 1 :]:
            assert sent_first(earlier, later)
            assert not sent_first(later, earlier)

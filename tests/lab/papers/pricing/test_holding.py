"""What opens the lock of a broker that is fed."""

import pytest

from lab.papers.pricing.holding import SILENCES_MAX, WISHES, Hold, Verdict


def test_a_small_gain_never_moves_anybody():
    hold = Hold()

    verdicts = {hold.judge(1, {1: 5.0, 2: 4.2}, margin=1.0, pressed=False) for _ in range(20)}

    assert verdicts == {(Verdict.STAY, 1)}


def test_a_gain_must_last():
    hold = Hold()

    verdicts = [
        hold.judge(1, {1: 5.0, 2: 3.0}, margin=1.0, pressed=False)[0] for _ in range(WISHES)
    ]

    assert verdicts == [Verdict.STAY] * (WISHES - 1) + [Verdict.MOVE]


def test_gains_that_take_turns_move_nobody():
    hold = Hold()
    ways = [{1: 5.0, 2: 3.0, 3: 4.5}, {1: 5.0, 2: 4.5, 3: 3.0}, {1: 5.0, 2: 4.5, 3: 4.5}]

    verdicts = {hold.judge(1, ways[n % 3], margin=1.0, pressed=False)[0] for n in range(30)}

    assert verdicts == {Verdict.STAY}


def test_who_is_to_leave_does_so_at_once_if_another_way_is_cheaper_at_all():
    assert Hold().judge(1, {1: 5.0, 2: 4.9}, margin=1.0, pressed=True) == (Verdict.MOVE, 2)
    assert Hold().judge(1, {1: 5.0, 2: 5.1}, margin=1.0, pressed=True) == (Verdict.STAY, 1)


def test_a_silent_parent_is_believed_for_some_numbers_and_then_left():
    hold = Hold()

    verdicts = [hold.judge(1, {2: 9.0, 3: 8.0}, margin=1.0, pressed=False) for _ in range(3)]

    assert SILENCES_MAX == 2
    assert verdicts == [(Verdict.REPEAT, 3), (Verdict.REPEAT, 3), (Verdict.MOVE, 3)]


@pytest.mark.parametrize("silences", [1, 2])
def test_one_word_of_the_parent_makes_good_its_silence(silences):
    hold = Hold()
    for _ in range(silences):
        hold.judge(1, {2: 9.0}, margin=1.0, pressed=False)

    hold.judge(1, {1: 5.0, 2: 9.0}, margin=1.0, pressed=False)

    assert hold.judge(1, {2: 9.0}, margin=1.0, pressed=False)[0] is Verdict.REPEAT


def test_who_knows_no_other_way_stays():
    assert Hold().judge(1, {1: 5.0}, margin=0.0, pressed=True) == (Verdict.STAY, 1)
    lost = Hold()
    for _ in range(9):
        assert lost.judge(1, {}, margin=0.0, pressed=True)[0] is Verdict.REPEAT


def test_a_parent_that_is_fed_by_us_is_left_at_once_if_there_is_another_way():
    verdict = Hold().judge(1, {2: 9.0, 3: 8.0}, margin=1.0, pressed=False, circle=True)
    alone = Hold().judge(1, {}, margin=1.0, pressed=False, circle=True)

    assert verdict == (Verdict.MOVE, 3)
    assert alone[0] is Verdict.REPEAT

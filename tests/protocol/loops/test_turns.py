"""What takes turns, and is worth a test, where nobody told of a bridge."""

from federator.protocol.loops.turns import GLANCE_EVERY_MS, GLANCE_MS, Turns, glances


def turns():
    return Turns(gap_ms_max=100, turns_min=8)


def seen(them, *, times, every_ms, delivered=lambda number: bool(number % 2)):
    """Whether each publication of the same raised a suspicion."""
    return [
        them.see("t", "m", delivered=delivered(number), now_ms=number * every_ms)
        for number in range(times)
    ]


def test_what_comes_in_and_is_delivered_by_turns_is_suspicious_from_the_given_number_on():
    them = turns()

    assert seen(them, times=10, every_ms=20) == [*[False] * 8, True, True]
    assert "t" in them


def test_what_only_comes_in_or_is_only_delivered_never_is():
    for way in (True, False):
        them = turns()
        assert not any(seen(them, times=1_000, every_ms=1, delivered=lambda _, way=way: way))
        assert "t" not in them


def test_clients_of_both_sides_that_say_the_same_each_second_are_not():
    assert not any(seen(turns(), times=1_000, every_ms=500))


def test_copies_that_go_round_together_are():
    assert any(seen(turns(), times=100, every_ms=5, delivered=lambda number: number % 10 < 5))


def test_different_publications_do_not_take_turns():
    them = turns()

    assert not any(
        them.see("t", number, delivered=bool(number % 2), now_ms=number) for number in range(1_000)
    )


def test_what_is_forgotten_begins_anew():
    them = turns()
    seen(them, times=10, every_ms=20)

    them.forget()

    assert "t" not in them
    assert seen(them, times=8, every_ms=20) == [False] * 8


def test_a_glance_is_a_small_part_of_the_time():
    looked = sum(glances(now_ms) for now_ms in range(10 * GLANCE_EVERY_MS))

    assert looked == 10 * GLANCE_MS
    assert 10 * GLANCE_MS <= GLANCE_EVERY_MS

from federator.protocol.routing.placed_priority import PlacedPriority

HOLD_MS = 1_000


def test_the_first_word_is_followed_at_once_and_the_next_after_the_hold():
    follower = PlacedPriority(0, hold_ms=HOLD_MS)

    assert follower.on_read(None, now_ms=0) is None
    assert follower.on_read(-3, now_ms=10) == -3
    assert follower.on_read(-5, now_ms=1_009) is None
    assert follower.on_read(-5, now_ms=1_010) == -5
    assert follower.on_read(-5, now_ms=9_000) is None


def test_without_a_valid_word_the_operators_priority_holds_again():
    follower = PlacedPriority(7, hold_ms=HOLD_MS)
    follower.on_read(-3, now_ms=0)

    assert follower.on_read(None, now_ms=HOLD_MS) == 7


def test_a_word_that_keeps_changing_moves_cores_once_per_hold():
    follower = PlacedPriority(0, hold_ms=HOLD_MS)

    changes = [follower.on_read(-1 - t % 2, now_ms=t) for t in range(0, 10_001, 7)]

    assert 1 < sum(change is not None for change in changes) <= 11

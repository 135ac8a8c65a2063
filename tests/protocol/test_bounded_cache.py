"""What is remembered for a moment is forgotten by number and by age."""

from federator.protocol.bounded_cache import Lately


def test_an_entry_is_kept_until_it_is_as_old_as_may_be_and_then_takes_no_room():
    lately = Lately(8, kept_ms=100)
    lately.put("a", 1, 0)
    lately.put("b", 2, 60)

    assert (lately.get("a", 99), lately.get("b", 99)) == (1, 2)
    assert lately.get("a", 100) is None
    assert len(lately) == 1
    assert lately.get("b", 100) == 2


def test_one_that_is_put_in_again_counts_from_then():
    lately = Lately(8, kept_ms=100)
    lately.put("a", 1, 0)
    lately.put("b", 2, 10)
    lately.put("a", 3, 90)

    assert (lately.get("a", 150), lately.get("b", 150)) == (3, None)


def test_the_oldest_makes_room():
    lately = Lately(2, kept_ms=100)
    for n in range(3):
        lately.put(n, n, n)

    assert [lately.get(n, 3) for n in range(3)] == [None, 1, 2]

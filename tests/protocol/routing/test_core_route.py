"""What is remembered of cores whose routes were erased: docs/protocol.md 6.8."""

from federator.protocol.routing.core_route import FormerNumbers
from federator.protocol.types import EPOCH_LEAP_MAX


def test_the_number_of_an_erased_core_is_found_again_once():
    former = FormerNumbers(cores_max=2)
    former.keep(1, (1_000, 7))

    assert former.take(1, 400) == (1_000, 7)
    assert former.take(1, 400) is None


def test_beyond_the_bound_the_core_erased_longest_ago_is_forgotten():
    former = FormerNumbers(cores_max=2)
    for core in (1, 2, 1, 3):
        former.keep(core, (1_000, core))

    assert len(former) == 2
    assert former.take(2, 400) is None
    assert former.take(1, 400) == (1_000, 1)


def test_a_number_that_the_core_would_not_believe_is_dropped():
    former = FormerNumbers(cores_max=2)
    former.keep(1, (EPOCH_LEAP_MAX + 401, 7))
    former.keep(2, (EPOCH_LEAP_MAX + 400, 7))

    assert former.take(1, 400) is None
    assert former.take(2, 400) is not None

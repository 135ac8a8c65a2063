"""What is remembered of cores whose routes were erased: docs/protocol.md 6.8."""

from federator.protocol.messages.control import CoreAnn
from federator.protocol.routing.core_route import FormerWords
from federator.protocol.types import EPOCH_LEAP_MAX


def word(core, epoch=1_000):
    return CoreAnn(2, core, 0, epoch, 7, 1, True, (), (), 0, 0)


def test_the_word_of_an_erased_core_is_found_again_once():
    former = FormerWords(cores_max=2)
    former.keep(word(1))

    assert former.take(1, 400) == word(1)
    assert former.take(1, 400) is None


def test_beyond_the_bound_the_core_erased_longest_ago_is_forgotten():
    former = FormerWords(cores_max=2)
    for core in (1, 2, 1, 3):
        former.keep(word(core))

    assert len(former) == 2
    assert former.take(2, 400) is None
    assert former.take(1, 400) == word(1)


def test_a_word_that_the_core_would_not_believe_is_dropped():
    former = FormerWords(cores_max=2)
    former.keep(word(1, EPOCH_LEAP_MAX + 401))
    former.keep(word(2, EPOCH_LEAP_MAX + 400))

    assert former.take(1, 400) is None
    assert former.take(2, 400) is not None

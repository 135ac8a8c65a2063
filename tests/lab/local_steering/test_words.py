"""What is believed of others' words, and for how long."""

import msgspec
import pytest

from federator.errors import DecodeError
from federator.protocol.messages.steering import Tree
from lab.local_steering.board import LIFETIME_MS, Board
from lab.local_steering.words import TREES_MAX, LinkPrices, PricedLink, Shift, decode, encode

TREE = Tree(1, ("a",), ((1, 2), (2, 3)))


def word(broker=1, epoch=1, number=1, links=(), **options):
    told = tuple(PricedLink(to, 1, 0.0, 100.0, 0.0) for to in links)
    return LinkPrices(broker, epoch, number, told, **options)


def test_a_word_comes_as_it_was_told():
    told = word(links=(2, 3), trees=(TREE,), shift=Shift(5.0, ((1, 2),), ((1, 3),)))

    assert decode(encode(told)) == told


@pytest.mark.parametrize(
    "bad",
    [
        word(broker=2, trees=(TREE,)),
        word(trees=(Tree(1, ("a",), ((2, 3),)),)),
        word(trees=(TREE,) * (TREES_MAX + 1)),
        word(number=-1),
        LinkPrices(1, 1, 1, (PricedLink(2, 1, float("inf"), 100.0, 0.0),)),
        LinkPrices(1, 1, 1, (PricedLink(2, 1, 0.0, 100.0, 1e9),)),
    ],
)
def test_a_word_that_no_agent_tells_is_not_believed(bad):
    with pytest.raises(DecodeError):
        decode(encode(bad))


def test_a_load_that_is_no_number_is_not_believed():
    nonsense = msgspec.msgpack.encode([1, 1, 1, [[2, 1, float("nan"), 100.0, 0.0]]])

    with pytest.raises(DecodeError):
        decode(nonsense)


def test_only_newer_words_are_news():
    board = Board()

    assert board.take(word(epoch=5, number=3), 0)
    assert not board.take(word(epoch=5, number=3), 0)
    assert not board.take(word(epoch=4, number=9), 0)
    assert board.take(word(epoch=6, number=0), 0)


def test_a_word_expires_and_its_trees_with_it():
    board = Board()
    board.take(word(trees=(TREE,)), 0)
    assert board.trees_through(3) == [TREE]

    assert board.forget(LIFETIME_MS + 1)

    assert board.trees_through(3) == []


def test_links_count_when_both_ends_are_heard():
    board = Board()
    board.take(word(1, links=(2, 3)), 0)
    board.take(word(2, links=(1,)), 0)

    assert set(board.network().links) == {(1, 2), (2, 1)}

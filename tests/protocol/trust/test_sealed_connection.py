"""What is said on a connection opens in its place there, and nowhere else."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import DecodeError
from federator.protocol.trust.guard import DATA, Manner
from federator.protocol.trust.sealed_connection import DRAWN_BYTES, greet, welcome, welcomed
from tests.protocol.trust.key_maker import KeyMaker
from tests.protocol.trust.test_guard import shake

DRAWN = random.Random(7)


@pytest.fixture(scope="module")
def guards():
    maker = KeyMaker()
    one, two = maker.guard(1), maker.guard(2)
    shake(one, two)
    return one, two


def connected(guards, *, caller=1):
    """The end that came, and the end it came to."""
    one, two = guards
    drawn = DRAWN.randbytes(DRAWN_BYTES)
    answer, there = welcome(two, caller, greet(one, 2, drawn), DRAWN.randbytes(DRAWN_BYTES))
    return welcomed(one, 2, drawn, answer), there


def test_both_ends_read_what_the_other_says_in_its_order_sort_by_sort(guards):
    here, there = connected(guards)
    said = [("d", b"1"), ("u", b"2"), ("d", b"3")]

    sealed = [(sort, here.seal(sort, body)) for sort, body in said]
    overtaken = [sealed[1], sealed[0], sealed[2]]

    assert [there.open(*each) for each in overtaken] == [b"2", b"1", b"3"]
    assert here.open("t", there.seal("t", b"counts")) == b"counts"


@given(st.data())
def test_whoever_leaves_out_repeats_swaps_or_changes_is_noticed_at_once(guards, data):
    """Packets of this connection and a former one, in any order: the true beginning opens."""
    (former, _), (here, there) = connected(guards), connected(guards)
    sorts = data.draw(st.lists(st.sampled_from("du"), min_size=1, max_size=8))
    true = [(sort, here.seal(sort, b"now")) for sort in sorts]
    others = [(sort, former.seal(sort, b"then")) for sort in sorts]
    said = data.draw(st.lists(st.sampled_from(true + others), max_size=12))
    places = {sort: [each for each in true if each[0] == sort] for sort in "du"}

    opened = {"d": 0, "u": 0}
    for sort, packet in said:
        is_next = (sort, packet) in places[sort][opened[sort] : opened[sort] + 1]
        if is_next:
            assert there.open(sort, packet) == b"now"
            opened[sort] += 1
        else:
            with pytest.raises(DecodeError):
                there.open(sort, packet)


def test_a_packet_is_of_its_sort_and_of_a_connection(guards):
    one, two = guards
    here, there = connected(guards)
    for sort, packet in (
        ("u", here.seal("d", b"x")),
        ("d", one.seal(DATA, "data", b"x", 2)),
        ("t", there.seal("t", b"x")),  # our own, thrown back
    ):
        with pytest.raises(DecodeError):
            there.open(sort, packet)
    with pytest.raises(DecodeError):
        two.unseal(DATA, "data", here.seal("d", b"x"))


def test_a_greeting_counts_once_and_its_answer_for_that_greeting(guards):
    one, two = guards
    first, second = DRAWN.randbytes(DRAWN_BYTES), DRAWN.randbytes(DRAWN_BYTES)
    greeting = greet(one, 2, first)
    answer, _ = welcome(two, 1, greeting, DRAWN.randbytes(DRAWN_BYTES))

    with pytest.raises(DecodeError, match="came before"):
        welcome(two, 1, greeting, DRAWN.randbytes(DRAWN_BYTES))
    with pytest.raises(DecodeError):
        welcomed(one, 2, second, answer)


@pytest.mark.parametrize("drawn", [b"", bytes(DRAWN_BYTES - 1), bytes(DRAWN_BYTES + 1)], ids=len)
def test_a_neighbour_that_draws_too_little_is_told_off(guards, drawn):
    one, two = guards
    with pytest.raises(DecodeError, match=f"{DRAWN_BYTES} wanted"):
        welcome(two, 1, greet(one, 2, drawn), bytes(DRAWN_BYTES))


def test_a_third_member_takes_no_part():
    maker = KeyMaker()
    one, two, three = (maker.guard(i) for i in (1, 2, 3))
    shake(one, two)
    shake(three, two)
    _, there = connected((one, two))
    elsewhere, _ = connected((three, two), caller=3)

    with pytest.raises(DecodeError):
        there.open("d", elsewhere.seal("d", b"x"))
    with pytest.raises(DecodeError, match="3 speaks on a connection with 1"):
        welcome(two, 1, greet(three, 2, bytes(DRAWN_BYTES)), bytes(DRAWN_BYTES))


def test_how_far_apart_numbers_are_is_no_matter(guards):
    """Elsewhere a seal is too old when 65,536 newer ones came; here its place decides."""
    one, _ = guards
    here, there = connected(guards)
    early = here.seal("d", b"waits in a long queue")
    one._sealed += 1_000_000
    late = here.seal("u", b"overtakes")

    assert there.open("u", late) == b"overtakes"
    assert there.open("d", early) == b"waits in a long queue"


def test_sealed_ones_are_not_to_be_read():
    maker = KeyMaker()
    one, two = maker.guard(1, manner=Manner.SEALED), maker.guard(2)
    shake(one, two)
    here, there = connected((one, two))
    packet = here.seal("d", b"secret")
    assert b"secret" not in packet
    assert there.open("d", packet) == b"secret"

"""Addresses that were passed on: nobody but their broker can name them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import DecodeError
from federator.protocol.trust.authority import DistrustError
from tests.protocol.trust.key_maker import KeyMaker

HOME = "mqtts://b1:8883"


@pytest.fixture
def maker():
    return KeyMaker()


def test_an_address_is_believed_whoever_brings_it(maker):
    one, three = maker.guard(1), maker.guard(3)

    three.check_address(1, 7, HOME, one.prove_address(HOME, 7))


@pytest.mark.parametrize(
    ("id", "epoch", "address"),
    [(1, 7, "mqtts://evil:8883"), (1, 8, HOME), (2, 7, HOME)],
)
def test_nobody_changes_an_address_on_the_way(maker, id, epoch, address):
    proof = maker.guard(1).prove_address(HOME, 7)

    with pytest.raises(DistrustError):
        maker.guard(3).check_address(id, epoch, address, proof)


def test_nobody_names_anothers_address(maker):
    two = maker.guard(2)

    with pytest.raises(DistrustError, match="signed by broker 2"):
        maker.guard(3).check_address(1, 7, HOME, two.prove_address(HOME, 7))


def test_another_federations_word_and_none_at_all_are_refused(maker):
    another = KeyMaker().guard(1)
    three = maker.guard(3)

    for proof in (another.prove_address(HOME, 7), b""):
        with pytest.raises(DistrustError):
            three.check_address(1, 7, HOME, proof)


def test_an_address_of_a_revoked_broker_is_believed_no_more(maker):
    one, three = maker.guard(1), maker.guard(3)
    proof = one.prove_address(HOME, 7)
    three.check_address(1, 7, HOME, proof)

    three.authority.revoke(maker.revoke(1))

    with pytest.raises(DistrustError, match="revoked"):
        three.check_address(1, 7, HOME, proof)


@given(proof=st.binary(max_size=300))
def test_rubbish_is_refused(proof):
    with pytest.raises(DecodeError):
        KeyMaker().guard(3).check_address(1, 7, HOME, proof)

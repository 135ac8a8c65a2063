"""Addresses that were passed on: nobody but their broker can name them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import DecodeError
from federator.protocol.trust.authority import DistrustError
from tests.protocol.trust.office import Office

HOME = "mqtts://b1:8883"


@pytest.fixture
def office():
    return Office()


def test_an_address_is_believed_whoever_brings_it(office):
    one, three = office.guard(1), office.guard(3)

    three.check_address(1, 7, HOME, one.prove_address(HOME, 7))


@pytest.mark.parametrize(
    ("id", "epoch", "address"),
    [(1, 7, "mqtts://evil:8883"), (1, 8, HOME), (2, 7, HOME)],
)
def test_nobody_changes_an_address_on_the_way(office, id, epoch, address):
    proof = office.guard(1).prove_address(HOME, 7)

    with pytest.raises(DistrustError):
        office.guard(3).check_address(id, epoch, address, proof)


def test_nobody_names_anothers_address(office):
    two = office.guard(2)

    with pytest.raises(DistrustError, match="signed by broker 2"):
        office.guard(3).check_address(1, 7, HOME, two.prove_address(HOME, 7))


def test_another_federations_word_and_none_at_all_are_refused(office):
    stranger = Office().guard(1)
    three = office.guard(3)

    for proof in (stranger.prove_address(HOME, 7), b""):
        with pytest.raises(DistrustError):
            three.check_address(1, 7, HOME, proof)


def test_an_address_of_a_revoked_broker_is_believed_no_more(office):
    one, three = office.guard(1), office.guard(3)
    proof = one.prove_address(HOME, 7)
    three.check_address(1, 7, HOME, proof)

    three.authority.revoke(office.revoke(1))

    with pytest.raises(DistrustError, match="revoked"):
        three.check_address(1, 7, HOME, proof)


@given(proof=st.binary(max_size=300))
def test_rubbish_is_refused(proof):
    with pytest.raises(DecodeError):
        Office().guard(3).check_address(1, 7, HOME, proof)

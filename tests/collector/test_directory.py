"""What guides of very many brokers cost; which brokers are found is in ``finding.txt``."""

import pytest

from federator.collector.directory import BROKERS_MAX, Directory
from federator.protocol.messages.guide import Guide, GuideBroker


def guide(count, address=str):
    """Of so many brokers besides the one that has it."""
    brokers = (GuideBroker(n, address(f"mqtt://h{n}")) for n in range(2, 2 + count))
    return Guide(1, "fed", 1, 1, 1, 1, tuple(brokers))


@pytest.fixture
def directory():
    directory = Directory(["mqtt://one"], only=False)
    assert directory.on_identity("mqtt://one", 1) == (True, [])
    return directory


def test_a_guide_that_invents_brokers_meets_a_bound(directory):
    orders = directory.on_guide(guide(3_998))

    assert len(orders) == BROKERS_MAX - 1
    assert len(directory.unreached) <= BROKERS_MAX


class Counted(str):
    """An address that counts how often one is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)


def test_a_guide_of_very_many_brokers_costs_as_much_as_it_is_long(directory):
    directory.on_guide(guide(3_998, Counted))

    assert Counted.compared < 3 * 4_000

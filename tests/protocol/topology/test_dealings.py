"""Since when what is as it is between a broker and others."""

import pytest

from federator.protocol.links import Connection, Links, Neighbour
from federator.protocol.parameters import Parameters
from federator.protocol.topology.dealings import Dealings

TWO = 2
ADDRESS = "mqtt://b2"


@pytest.fixture
def links():
    """Of broker 1."""
    return Links(1, 1, "mqtt://b1", Parameters())


@pytest.fixture
def dealings():
    return Dealings(cool_ms=100)


def put(links, *, up, address=ADDRESS):
    """A connection leads to broker 2, which is ``up`` or not."""
    links.connections[7] = Connection(7, address, TWO, 1, neighbour=TWO)
    links.neighbours[TWO] = Neighbour(TWO, 1, 0, conn=7, up=up)


def test_what_goes_on_keeps_the_time_at_which_it_began(links, dealings):
    dealings.on_dialled(TWO, ADDRESS, 10)
    put(links, up=False)
    dealings.look(links, 20)
    dealings.look(links, 30)
    assert (dealings.idle_ms, dealings.up_ms) == ({TWO: 10}, {})

    put(links, up=True)
    dealings.look(links, 40)
    dealings.look(links, 50)
    assert (dealings.idle_ms, dealings.up_ms) == ({}, {TWO: 40})
    assert dealings.fallen == set()


def test_a_link_that_was_up_has_fallen_until_it_is_up_again(links, dealings):
    put(links, up=True)
    dealings.look(links, 10)
    put(links, up=False)
    dealings.look(links, 20)
    dealings.look(links, 30)
    assert (dealings.fallen, dealings.idle_ms) == ({TWO}, {TWO: 20})

    put(links, up=True)
    dealings.look(links, 40)
    assert dealings.fallen == set()


def test_who_cannot_be_reached_is_passed_over_for_a_while(links, dealings):
    dealings.passed_over[TWO] = 100

    dealings.look(links, 99)
    assert dealings.knows(TWO)

    dealings.look(links, 100)
    assert not dealings.knows(TWO)


def test_who_is_up_is_passed_over_no_more(links, dealings):
    dealings.passed_over[TWO] = 100
    put(links, up=True)

    dealings.look(links, 0)

    assert dealings.passed_over == {}


def test_who_was_dialled_is_called_off_when_the_link_is_given_up_and_who_dialled_us_is_not(
    dealings,
):
    dealings.on_dialled(TWO, ADDRESS, 0)

    assert dealings.part(TWO, 10)
    assert not dealings.knows(TWO)
    assert not dealings.part(3, 10)


def test_a_link_given_up_is_remembered_as_long_as_asked_for_or_until_it_is_forgiven(
    links, dealings
):
    dealings.part(TWO, 10)
    dealings.part(3, 10)
    dealings.look(links, 109)

    assert dealings.parted_lately(TWO, 100, 109)
    assert not dealings.parted_lately(TWO, 99, 109)
    dealings.forgive(TWO)
    assert not dealings.parted_lately(TWO, 100, 109)
    dealings.look(links, 110)
    assert not dealings.parted_lately(3, 1_000, 110)


def test_of_two_ways_to_one_broker_the_one_that_its_link_goes_is_kept(links, dealings):
    dealings.on_dialled(TWO, "mqtt://another-name", 0)
    put(links, up=True)

    dealings.look(links, 10)

    assert dealings.dials == {}

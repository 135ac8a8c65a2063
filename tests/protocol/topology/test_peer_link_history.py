"""Since when what is as it is between a broker and others."""

import pytest

from federator.protocol.links.links import Links
from federator.protocol.links.neighbour import LinkConnection, Neighbour
from federator.protocol.parameters import Parameters
from federator.protocol.topology.peer_link_history import PeerLinkHistory

TWO = 2
ADDRESS = "mqtt://b2"


@pytest.fixture
def links():
    """Of broker 1."""
    return Links(1, 1, "mqtt://b1", Parameters())


@pytest.fixture
def history():
    return PeerLinkHistory(cool_ms=100)


def put(links, *, up, address=ADDRESS):
    """A connection leads to broker 2, which is ``up`` or not."""
    links.connections[7] = LinkConnection(7, address, TWO, 1, neighbour=TWO)
    links.neighbours[TWO] = Neighbour(TWO, 1, 0, conn=7, up=up)


def test_what_goes_on_keeps_the_time_at_which_it_began(links, history):
    history.on_dialled(TWO, ADDRESS, 10)
    put(links, up=False)
    history.update(links, 20)
    history.update(links, 30)
    assert (history.idle_ms, history.up_ms) == ({TWO: 10}, {})

    put(links, up=True)
    history.update(links, 40)
    history.update(links, 50)
    assert (history.idle_ms, history.up_ms) == ({}, {TWO: 40})
    assert history.fallen == set()


def test_a_link_that_was_up_has_fallen_until_it_is_up_again(links, history):
    put(links, up=True)
    history.update(links, 10)
    put(links, up=False)
    history.update(links, 20)
    history.update(links, 30)
    assert (history.fallen, history.idle_ms) == ({TWO}, {TWO: 20})

    put(links, up=True)
    history.update(links, 40)
    assert history.fallen == set()


def test_who_cannot_be_reached_is_passed_over_for_a_while(links, history):
    history.passed_over[TWO] = 100

    history.update(links, 99)
    assert history.knows(TWO)

    history.update(links, 100)
    assert not history.knows(TWO)


def test_who_is_up_is_passed_over_no_more(links, history):
    history.passed_over[TWO] = 100
    put(links, up=True)

    history.update(links, 0)

    assert history.passed_over == {}


def test_who_was_dialled_is_called_off_when_the_link_is_given_up_and_who_dialled_us_is_not(
    history,
):
    history.on_dialled(TWO, ADDRESS, 0)

    assert history.part(TWO, 10)
    assert not history.knows(TWO)
    assert not history.part(3, 10)


def test_a_link_given_up_is_remembered_as_long_as_asked_for_or_until_it_is_forgiven(links, history):
    history.part(TWO, 10)
    history.part(3, 10)
    history.update(links, 109)

    assert history.parted_lately(TWO, 100, 109)
    assert not history.parted_lately(TWO, 99, 109)
    history.forgive(TWO)
    assert not history.parted_lately(TWO, 100, 109)
    history.update(links, 110)
    assert not history.parted_lately(3, 1_000, 110)


def test_of_two_ways_to_one_broker_the_one_that_its_link_goes_is_kept(links, history):
    history.on_dialled(TWO, "mqtt://another-name", 0)
    put(links, up=True)

    history.update(links, 10)

    assert history.dials == {}

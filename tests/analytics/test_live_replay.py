"""Fetching exactly what was asked for, from a real broker, whatever happens to the answer."""

import time

import pytest
from federator_analytics.errors import UnavailableError
from federator_analytics.sources.live.link import Access, Place
from federator_analytics.sources.live.replay import Held, Lost, Replay

from tests.analytics.brokers import brokers
from tests.analytics.spool_peer import SpoolPeer


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    with brokers(tmp_path_factory.mktemp("replay")) as (broker,):
        yield broker.port


@pytest.fixture
def peer(port):
    with SpoolPeer(port, 3) as found:
        yield found


def read(peer, port, first, last, *, spool=None, answer_s=20.0):
    place = Place(f"mqtt://127.0.0.1:{port}", Access())
    wanted = Held(3, spool or peer.spool, first, last)
    return list(Replay(place, "fed", wanted, answer_s=answer_s, ask_again_s=0.5).read())


def lines(pieces):
    return [line.decode() for piece in pieces for _, line in piece.lines]


def expected(peer, first, last):
    return [line for n in range(first, last + 1) for line in peer.batches[n]]


def test_a_range_is_read_whole_in_order_and_nothing_else(peer, port):
    peer.write(100)

    found = read(peer, port, 20, 61)

    assert lines(found) == expected(peer, 20, 61)
    assert [number for piece in found for number, _ in piece.lines] == [
        number for number in range(20, 62) for _ in range(2)
    ]
    assert set(peer.asked) == {(20, 61)}


def test_an_answer_sent_twice_is_read_once(peer, port):
    peer.write(30)
    peer.twice = True

    assert lines(read(peer, port, 1, 30)) == expected(peer, 1, 30)


def test_what_an_answer_left_out_is_asked_for_again(peer, port):
    peer.write(30)
    peer.forget = {1, 5}

    assert lines(read(peer, port, 1, 30)) == expected(peer, 1, 30)
    assert len(peer.asked) >= 2


def test_an_answer_that_does_not_come_is_asked_for_again(peer, port):
    peer.write(3)
    peer.forget = {0}

    assert lines(read(peer, port, 1, 3)) == expected(peer, 1, 3)


def test_dropped_batches_are_told_and_the_rest_is_read(peer, port):
    peer.write(30)
    peer.drop(11)

    lost, *rest = read(peer, port, 5, 30)

    assert (lost.first, lost.last) == (5, 10)
    assert lines(rest) == expected(peer, 11, 30)


def test_a_range_of_which_nothing_is_left_is_lost_whole(peer, port):
    peer.write(30)
    peer.drop(30)

    (lost,) = read(peer, port, 5, 9)

    assert (lost.first, lost.last) == (5, 9)


def test_batches_that_were_never_written_are_lost(peer, port):
    peer.write(4)

    *found, lost = read(peer, port, 3, 6)

    assert lines(found) == expected(peer, 3, 4)
    assert isinstance(lost, Lost)
    assert (lost.first, lost.last) == (5, 6)


def test_the_batches_of_a_lost_disk_are_lost(peer, port):
    peer.lose("b" * 16)
    peer.write(50)

    (lost,) = read(peer, port, 5, 9, spool="a" * 16)

    assert (lost.first, lost.last, lost.at_us) == (5, 9, 7_000_000)


def test_a_silent_agent_is_an_error_that_names_it(peer, port):
    peer.write(9)
    peer.silent = True

    with pytest.raises(UnavailableError, match=r"the agent of broker 3 at mqtt://127\.0\.0\.1:"):
        read(peer, port, 1, 9, answer_s=0.5)


def test_an_agent_that_answers_late_is_waited_for(peer, port):
    peer.write(9)
    peer.forget = {0, 1}

    begun_s = time.monotonic()
    found = read(peer, port, 1, 9)

    assert lines(found) == expected(peer, 1, 9)
    assert time.monotonic() - begun_s < 20


def test_no_broker_is_an_error_that_names_it():
    wanted = Held(3, "a" * 16, 1, 2)
    replay = Replay(Place("mqtt://127.0.0.1:9", Access()), "fed", wanted, answer_s=0.5)

    with pytest.raises(UnavailableError, match=r"broker mqtt://127\.0\.0\.1:9: .*refused"):
        list(replay.read())

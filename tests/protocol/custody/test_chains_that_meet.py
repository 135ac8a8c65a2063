"""Frames on several chains that were followed for different times; found by simulation."""

from federator.protocol.types import Millis
from tests.protocol.custody.test_custody import EPOCH, ORIGIN, A, Archive, B, Reader

NOW_US = 110_000_000  # of a reader that meets a frame of the archive
NOW = Millis(0)


def test_what_is_missing_on_one_chain_is_delivered_though_another_began_after_it() -> None:
    archive = Archive()
    frames = [archive.make((A, B)) for _ in range(4)]
    reader = Reader(archive, A)
    reader.take(frames[0])
    reader.receiver.want(B, since_us=NOW_US)
    reader.take(archive.make((B,), time_us=100_000_000))  # B begins behind all four frames
    reader.tail(A)

    reader.settle()
    assert reader.delivered == [1, 5, 2, 3, 4]


def test_what_was_delivered_for_one_chain_is_not_missing_on_another() -> None:
    archive = Archive()
    for second in range(3):
        archive.make((A, B), time_us=90_000_000 + second * 1_000_000)
    reader = Reader(archive, A)
    for frame in archive.frames:
        reader.take(frame)
    reader.receiver.want(B, since_us=101_500_000)  # asks for the last two once more
    last = archive.make((B,), time_us=100_000_000)
    reader.take(last)

    reader.settle()
    assert reader.delivered == [1, 2, 3, 4]


def test_a_clock_that_was_set_back_makes_nobody_miss_anything() -> None:
    archive = Archive()
    for _ in range(3):
        archive.make((A,))
    an_hour_ahead_us = NOW_US + 3_600_000_000
    reader = Reader(archive, A, since_us=an_hour_ahead_us)
    reader.take(archive.frames[2])

    reader.settle()
    assert reader.delivered == [1, 2, 3]


def test_after_a_restart_too_a_frame_of_two_chains_comes_once() -> None:
    archive = Archive()
    frames = [archive.make((A, B)) for _ in range(3)]
    before = Reader(archive, A)
    for frame in frames[:2]:
        before.take(frame)
    reader = Reader(archive, A, B)
    reader.receiver.restore(before.receiver.positions(), now_ms=NOW)
    reader.take(frames[2])

    reader.settle()
    assert before.delivered + reader.delivered == [1, 2, 3]
    assert reader.receiver.positions()[ORIGIN, B][:2] == (EPOCH, 3)


def test_what_was_delivered_before_a_filter_was_given_up_does_not_come_again_with_it() -> None:
    archive = Archive()
    for _ in range(3):
        archive.make((A,))
    reader = Reader(archive, A)
    for frame in archive.frames:
        reader.take(frame)
    reader.receiver.unwant(A)
    missed = archive.make((A,))
    reader.receiver.want(A, since_us=0)  # and the origin's clock was set back: all looks new
    reader.take(archive.make((A,)))

    reader.settle()
    assert reader.delivered == [1, 2, 3, missed.seq, missed.seq + 1]

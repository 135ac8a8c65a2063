"""Frames over a road that loses: what arrives, when, at what price, and what goes by the broker."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from federator.protocol.datagrams import wire
from federator.protocol.datagrams.link import DatagramLink
from federator.protocol.datagrams.receiver import PARTIAL_BYTES_MAX, PARTS_KEPT, WINDOWS_MAX
from federator.protocol.datagrams.sender import Limits
from federator.protocol.types import Millis
from federator.runtime.datagrams.raptor import RaptorCoder
from tests.protocol.datagrams.road import Road
from tests.transcripts import play, scenes


def numbered(n, size=100):
    return n.to_bytes(4, "big") + bytes(size - 4)


def number_of(frame):
    return int.from_bytes(frame[:4], "big")


def steady(road, frames, gap_ms=10, size=100):
    """Offer so many frames at end 0; when each was offered."""
    offered = {}
    for n in range(frames):
        offered[n] = road.now
        assert road.offer(0, numbered(n, size))
        road.run(gap_ms)
    road.run(2_000)
    return offered


def test_without_loss_frames_arrive_at_once_in_order_and_nothing_is_added():
    road = Road().usable()

    offered = steady(road, 500)

    assert [number_of(f) for _, f in road.came[1]] == list(range(500))
    assert {at - offered[number_of(f)] for at, f in road.came[1]} == {50}
    counters = road.ends[0].sender.counters
    assert (counters.parts, counters.repairs, counters.given_back) == (500, 0, 0)


def test_a_frame_that_comes_in_two_parts_of_their_own_is_taken_once():
    receiver = DatagramLink(Limits(), RaptorCoder(), stream=1, now_ms=Millis(0)).receiver
    content = wire.content(wire.Place(1, 0, 1), b"once")

    came = [
        frame
        for number in (1, 2)
        for frame in receiver.take(1, number, wire.Part(number, 0, content), now_ms=Millis(0))
    ]

    assert came == [b"once"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_loss_what_is_not_rebuilt_in_time_is_given_back_and_nothing_is_lost(seed):
    road = Road(seed, plr=0.02).usable()

    offered = steady(road, 3_000)

    came = {number_of(f): at for at, f in reversed(road.came[1])}
    given_back = {number_of(f) for _, f in road.back[0]}
    assert set(came) | given_back == set(range(3_000))
    learnt = [n for n in came if n >= 1_000]
    missing = set(range(1_000, 3_000)) - set(learnt)
    assert len(missing) <= 0.01 * 2_000
    delays = sorted(came[n] - offered[n] for n in learnt)
    assert delays[len(delays) // 2] == 50
    assert delays[int(len(delays) * 0.99)] <= 50 + 10  # the next frame's repair packets
    assert road.ends[1].receiver.counters.rebuilt_parts > 10


def test_long_frames_are_cut_and_put_together():
    road = Road(2, plr=0.02, bytes_per_s=20_000_000).usable()
    rng = random.Random(4)
    frames = [
        rng.randbytes(rng.choice((1, 1_141, 1_142, 1_143, 50_000, 262_144))) for _ in range(60)
    ]

    for frame in frames:
        assert road.offer(0, frame)
        road.run(60)
    road.run(2_000)

    came = [f for _, f in road.came[1]]
    back = [f for _, f in road.back[0]]
    assert sorted([*came, *(f for f in back if f not in came)]) == sorted(frames)
    assert len(came) > 50
    assert max(map(len, road.sent[0])) <= 1_167


def test_disorder_and_repeats_do_no_harm():
    road = Road(5, plr=0.02, jitter_ms=15, repeat=0.3).usable()

    steady(road, 2_000)

    came = [number_of(f) for _, f in road.came[1]]
    assert len(came) == len(set(came))
    late = sum(a > b for a, b in pairwise(came))
    assert late <= 10
    assert len(came) >= 1_980


def test_a_dead_road_gives_everything_back_and_is_used_again_when_it_lives():
    road = Road().usable()
    road.chains[0].to_bad, road.chains[0].to_good = 1.0, 0.0

    sent = sum(road.offer(0, numbered(n)) for n in range(50) if road.run(100))
    road.run(5_000)

    assert not road.ends[0].usable
    assert len(road.back[0]) == sent
    assert not road.offer(0, numbered(99))
    road.chains[0].to_bad, road.chains[0].to_good = 0.0, 1.0
    road.run(60_000)
    assert road.offer(0, numbered(100))
    road.run(100)
    assert number_of(road.came[1][-1][1]) == 100


def test_a_road_too_narrow_for_our_datagrams_is_never_used():
    road = Road()
    wide, road._send = road._send, None
    road._send = lambda end, datagrams: wide(end, [d for d in datagrams if len(d) <= 1_000])

    road.run(30_000)

    assert not road.ends[0].usable
    assert len(road.sent[0]) == 0


def test_repair_packets_come_with_losses_and_go_when_they_stop():
    road = Road(3, plr=0.02).usable()
    steady(road, 1_500)
    counters = road.ends[0].sender.counters
    parts, repairs = counters.parts, counters.repairs
    assert 0.01 <= road.ends[0].sender.plr <= 0.04
    assert repairs > parts

    road.chains[0].to_bad = 0.0
    steady(road, 3_000)
    parts, repairs = counters.parts, counters.repairs
    steady(road, 2_000)

    assert counters.repairs - repairs <= 0.05 * (counters.parts - parts)


def test_the_pace_is_kept_and_what_does_not_fit_is_refused_not_queued():
    road = Road(bytes_per_s=50_000).usable()
    begun, count = road.now, len(road.sent[0])

    taken = sum(road.offer(0, numbered(n, 1_000)) for n in range(1_000) if road.run(1))
    spent_ms = road.now - begun

    sent = sum(map(len, road.sent[0][count:]))
    assert taken < 100
    assert sent <= 50_000 * spent_ms / 1_000 + 5_000
    road.run(1_000)
    assert len(road.came[1]) == taken


def pieces(frames, parts, size=1_100):
    """One part of each of so many frames that are never whole, numbered on."""
    for n in range(frames):
        content = wire.content(wire.Place(n + 1, n % parts, parts), bytes(size))
        body = wire.part_body(wire.Part(n + 1, 12, content))
        yield wire.head(wire.PART, stream=7, number=100 + n) + body


@pytest.mark.parametrize(("parts", "size"), [(512, 20), (2, 1_100)])
def test_what_waits_is_bounded_whatever_a_neighbour_sends(parts, size):
    road = Road().usable()
    receiver = road.ends[1].receiver

    for datagram in pieces(2_000, parts, size):
        road.ends[1].on_datagram(datagram, now_ms=road.now)

    assert road.ends[1].malformed == 0
    assert 0 < receiver.held_bytes <= PARTIAL_BYTES_MAX
    assert len(receiver._parts) <= PARTS_KEPT
    assert len(receiver._partials) <= wire.WINDOW


def test_windows_are_bounded_whatever_a_neighbour_sends():
    road = Road().usable()

    for n in range(1, 1_000):
        body = wire.repair_body(wire.Repair(n, 9, 4, bytes(64)))
        datagram = wire.head(wire.REPAIR, stream=7, number=100 + n) + body
        road.ends[1].on_datagram(datagram, now_ms=road.now)

    assert road.ends[1].malformed == 0
    assert len(road.ends[1].receiver._windows) == WINDOWS_MAX


class Lossy(Road):
    """Loses parts and repair packets of end 0 by their place in order, while ``lose`` has any."""

    lose = ""
    silent = False  # nothing of end 1 arrives

    def _send(self, end, datagrams):
        for datagram in [] if end and self.silent else datagrams:
            counts = end == 0 and self.lose and datagram[0] in (wire.PART, wire.REPAIR)
            lost, self.lose = (self.lose[0] == "x", self.lose[1:]) if counts else (False, self.lose)
            if not lost:
                super()._send(end, [datagram])


class Stage:
    """A road without losses of its own; ``road repairs_max=0`` makes another.

    ``steady 8 10`` offers so many frames, one in so many ms. ``learnt``: as if a report had said
    that one part wants 4 repair packets, and 3 in a second window. ``lose xx.`` loses the next
    parts and repair packets, but for those marked ``.``. ``offer`` offers frames by number, and
    ``run`` passes the time. Prints what is sent of parts (P) and repair packets (R) before losses,
    what arrives and what is given back, with the ms since the frame was offered.
    """

    def __init__(self):
        self._road()

    def do(self, command, *words):
        road = self.road
        came, back = len(road.came[1]), len(road.back[0])
        counters = road.ends[0].sender.counters
        before = counters.parts, counters.repairs
        getattr(self, f"_{command}")(*words)
        if command in ("road", "steady"):
            return
        parts, repairs = counters.parts - before[0], counters.repairs - before[1]
        if parts or repairs:
            yield f"sends {parts} P {repairs} R"
        for verb, found in (("arrives", road.came[1][came:]), ("back", road.back[0][back:])):
            for at, frame in found:
                number = number_of(frame)
                yield f"{number} {verb} after {at - self.offered[number]}"
        if command == "run" and road.lose:
            yield f"not sent: {len(road.lose)}"

    def _road(self, *options):
        limits = {name: int(n) for name, n in (option.split("=") for option in options)}
        self.road, self.offered = Lossy(**limits).usable(), {}

    def _steady(self, frames, gap_ms):
        steady(self.road, int(frames), gap_ms=int(gap_ms))

    def _learnt(self):
        self.road.ends[0].sender.plr, self.road.ends[0].sender.abl = 0.02, 2.0

    def _lose(self, which):
        self.road.lose = which

    def _silent(self, whether):
        self.road.silent = whether == "yes"

    def _offer(self, *numbers):
        for number in map(int, numbers):
            self.offered[number] = self.road.now
            assert self.road.offer(0, numbered(number))

    def _run(self, ms):
        self.road.run(int(ms))

    def _offers(self, first, last, gap_ms):
        for number in range(int(first), int(last) + 1):
            self._offer(number)
            self.road.run(int(gap_ms))

    def _time_out(self):
        self.road.run(self.road.ends[0].sender.timeout_ms + 50)


@scenes(Path(__file__).with_name("link.txt"))
def test_transcript(path, number):
    play(path, number, Stage())

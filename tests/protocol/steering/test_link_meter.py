"""Rates of links, and capacity learnt from queues that never emptied."""

import pytest

from federator.protocol.steering.link_meter import FORGET_MS, SAMPLES_MAX, LinkMeter, LinkSample


class Line:
    """A link that carries ``bits`` a second, and what waits before it; sampled every second."""

    def __init__(self, bits):
        self.bits = bits
        self.meter = LinkMeter()
        self.at_ms = self.left = self.waiting = self.emptied = 0
        self.sample()

    def sample(self):
        stint = (1, self.emptied)
        self.meter.take({2: LinkSample(self.at_ms, self.left, self.waiting, stint)})

    def offer(self, bits, seconds):
        for _ in range(seconds):
            waited = self.waiting
            self.waiting += bits // 8
            carried = min(self.waiting, self.bits // 8)
            self.left += carried
            self.waiting -= carried
            self.emptied += bool(waited and not self.waiting)
            self.at_ms += 1_000
            self.sample()
        return self.meter.capacity(2)


def test_a_link_that_keeps_up_tells_its_rate_and_no_capacity():
    line = Line(2_000_000)

    assert line.meter.rate(2) is None
    assert line.offer(800_000, 5) is None
    assert line.meter.rate(2) == 800_000


def test_a_link_that_falls_behind_tells_its_capacity_and_keeps_it_for_a_while():
    line = Line(2_000_000)

    assert line.offer(3_000_000, 5) == 2_000_000
    line.waiting = 0
    assert line.offer(400_000, 60) == 2_000_000
    assert line.meter.rate(2) == 400_000
    assert line.offer(400_000, FORGET_MS // 1_000) is None


def test_capacity_follows_a_link_that_changes_within_ten_seconds():
    line = Line(2_000_000)
    line.offer(5_000_000, 10)

    line.bits = 500_000

    assert line.offer(5_000_000, 10) == pytest.approx(500_000)


def test_a_link_that_carries_more_than_it_could_has_a_capacity_that_nobody_knows():
    line = Line(2_000_000)
    line.offer(3_000_000, 5)
    line.bits, line.waiting = 20_000_000, 0

    assert line.offer(6_000_000, 10) is None
    assert line.meter.rate(2) == pytest.approx(6_000_000, rel=0.01)


def test_what_a_link_carried_before_it_became_narrow_is_no_objection():
    line = Line(50_000_000)
    line.offer(48_000_000, 10)
    line.bits = 8_000_000

    assert line.offer(48_000_000, 5) == 8_000_000
    line.waiting = 0
    assert line.offer(4_000_000, 5) == 8_000_000


def test_what_left_before_the_link_was_full_does_not_count():
    line = Line(2_000_000)
    line.offer(400_000, 6)

    assert line.offer(5_000_000, 4) == 2_000_000


def test_a_short_queue_teaches_nothing_nor_does_one_that_was_empty_in_between():
    line = Line(2_000_000)

    assert line.offer(3_000_000, 2) is None
    for _ in range(20):
        line.emptied += 1
        assert line.offer(2_100_000, 1) is None


def test_a_link_that_takes_nothing_has_no_capacity_to_learn():
    line = Line(0)

    assert line.offer(1_000_000, 10) is None


def test_what_counts_from_the_beginning_again_and_links_that_are_gone_are_forgotten():
    line = Line(2_000_000)
    line.offer(800_000, 5)
    line.left = 0
    line.offer(0, 1)
    assert line.meter.rate(2) is None

    line.meter.take({})
    assert (line.meter.rate(2), line.meter.capacity(2), line.meter.queue_bytes(2)) == (
        None,
        None,
        0,
    )


def test_samples_are_bounded_even_when_the_clock_stands_still():
    meter = LinkMeter()
    for _ in range(3 * SAMPLES_MAX):
        meter.take({2: LinkSample(5, 0, 1)})

    assert len(meter._links[2].samples) == SAMPLES_MAX
    assert meter.rate(2) is None

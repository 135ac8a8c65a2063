"""Rates of links, and capacity learnt from queues that never emptied. docs/observability.md."""

from pathlib import Path

from federator.protocol.steering.link_meter import SAMPLES_MAX, LinkMeter, LinkSample
from tests.transcripts import play, scenes


class Stage:
    """A link that carries ``line 2M`` bit/s, and what waits before it; sampled every second.

    ``offer 3M 5``: so many bit/s for five seconds. Prints rate and capacity, to a kbit/s, when
    they change. ``empties``: the queue was empty for a moment between two samples.
    """

    def __init__(self):
        self.meter, self.bits = LinkMeter(), 0
        self.at_ms = self.left = self.waiting = self.emptied = 0

    def do(self, command, *words):
        before = self._figures()
        getattr(self, f"_{command}")(*words)
        yield from (now for now, then in zip(self._figures(), before, strict=True) if now != then)

    def _figures(self):
        rate, capacity = self.meter.rate(2), self.meter.capacity(2)
        return f"rate {kbit(rate)}", f"capacity {kbit(capacity)}"

    def _sample(self):
        stint = (1, self.emptied)
        self.meter.take({2: LinkSample(self.at_ms, self.left, self.waiting, stint)})

    def _line(self, bits):
        self.bits = number(bits)
        if not self.at_ms:
            self._sample()

    def _offer(self, bits, seconds):
        for _ in range(int(seconds)):
            waited = self.waiting
            self.waiting += number(bits) // 8
            carried = min(self.waiting, self.bits // 8)
            self.left += carried
            self.waiting -= carried
            self.emptied += bool(waited and not self.waiting)
            self.at_ms += 1_000
            self._sample()

    def _drop_queue(self):
        self.waiting = 0

    def _empties(self):
        self.emptied += 1

    def _restarts(self):
        self.left = 0

    def _gone(self):
        self.meter.take({})
        assert self.meter.queue_bytes(2) == 0


def number(text):
    return int(float(text.removesuffix("M")) * (1_000_000 if text.endswith("M") else 1))


def kbit(bits):
    return "unknown" if bits is None else f"{bits / 1_000:.0f}"


@scenes(Path(__file__).with_name("link_meter.txt"))
def test_transcript(path, number):
    play(path, number, Stage())


def test_samples_are_bounded_even_when_the_clock_stands_still():
    meter = LinkMeter()
    for _ in range(3 * SAMPLES_MAX):
        meter.take({2: LinkSample(5, 0, 1)})

    assert len(meter._links[2].samples) == SAMPLES_MAX
    assert meter.rate(2) is None

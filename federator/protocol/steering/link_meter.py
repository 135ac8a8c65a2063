"""Measures how much goes over each of our links, and how much it can carry.

A rate is what was sent in the last ten seconds. The capacity of a link shows when the link is
saturated: while our queue is never empty, what is sent is the link's capacity, as the flow through
a tap shows its width only while it is open. We average over up to ten seconds of that time, so that
the capacity follows changes, and remember it for an hour after, unless the link carries more by
then: a steerer keeps flows away from the link meanwhile. A link that always keeps up shows no
capacity.

Source: docs/observability.md, "How full links are".
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from federator.protocol.types import BrokerId, Millis

SPAN_MS: Final = 10_000
FULL_MS_MIN: Final = 3_000
"""A shorter time with a queue proves little: the kernel accepts bytes in large pieces."""

FORGET_MS: Final = 3_600_000
OUTDONE: Final = 1.1
"""A capacity is forgotten when the link carries so many times as much."""

SAMPLES_MAX: Final = 64
"""Samples of one link; fewer are taken in ``SPAN_MS``."""


@dataclass(frozen=True, slots=True)
class LinkSample:
    """The state of a link at one moment."""

    at_ms: Millis
    bytes_left: int  # bytes sent so far
    queue_bytes: int  # bytes that wait to be sent
    # Changes whenever the queue was empty for a moment, or the link down.
    stint: tuple[int, ...] = ()


@dataclass(slots=True)
class _Link:
    samples: deque[LinkSample] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))
    full_from: LinkSample | None = None  # since when the queue has never been empty
    learnt: float | None = None  # bit/s
    learnt_ms: Millis = Millis(0)


class LinkMeter:
    """The links of one agent, by neighbour."""

    def __init__(self) -> None:
        self._links: dict[BrokerId, _Link] = {}

    def take(self, samples: dict[BrokerId, LinkSample]) -> None:
        """Take one sample of each present link; the others are forgotten."""
        self._links = {id: self._links.get(id) or _Link() for id in samples}
        for id, sample in samples.items():
            self._take(self._links[id], sample)

    def rate(self, neighbour: BrokerId) -> float | None:
        """Recent bit/s; ``None`` before there are two samples."""
        link = self._links.get(neighbour)
        return None if link is None else _rate(link.samples)

    def queue_bytes(self, neighbour: BrokerId) -> int:
        """Bytes that waited to be sent at the last sample."""
        link = self._links.get(neighbour)
        return link.samples[-1].queue_bytes if link is not None and link.samples else 0

    def capacity(self, neighbour: BrokerId) -> float | None:
        """bit/s that the link carried when saturated; ``None``: it was not, lately."""
        link = self._links.get(neighbour)
        return None if link is None else link.learnt

    def _take(self, link: _Link, sample: LinkSample) -> None:
        samples, full = link.samples, link.full_from
        if samples and sample.bytes_left < samples[-1].bytes_left:  # the counter restarted from 0
            samples.clear()
            full = None
        samples.append(sample)
        while len(samples) > 1 and sample.at_ms - samples[1].at_ms >= SPAN_MS:
            samples.popleft()
        if not sample.queue_bytes:
            full = None
        elif full is None or full.stint != sample.stint:
            full = sample
        link.full_from = full
        if full is not None and sample.at_ms - full.at_ms >= FULL_MS_MIN:
            rate = _rate([s for s in samples if s.at_ms >= full.at_ms])
            if rate:  # a link that sends nothing is about to go down, and shows no capacity
                link.learnt, link.learnt_ms = rate, sample.at_ms
        if full is None and link.learnt is not None:
            # A link that carries clearly more than its capacity has changed.
            of_late = [s for s in samples if sample.at_ms - s.at_ms <= FULL_MS_MIN]
            if (_rate(of_late) or 0.0) > OUTDONE * link.learnt:
                link.learnt = None
        if sample.at_ms - link.learnt_ms > FORGET_MS:
            link.learnt = None


def _rate(samples: deque[LinkSample] | list[LinkSample]) -> float | None:
    """bit/s between the first and the last sample."""
    if len(samples) < 2 or samples[-1].at_ms <= samples[0].at_ms:
        return None
    first, last = samples[0], samples[-1]
    return 8_000 * (last.bytes_left - first.bytes_left) / (last.at_ms - first.at_ms)

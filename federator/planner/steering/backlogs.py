"""Queues before links, and how fast they drain: a draining queue is no reason for new routes.

A link that was jammed carries all it can after flows left it, until its queue is empty, and so may
links behind it. Agents report that load, but it is no flow's rate. So links may carry as much
beyond their flows as leaves all queues beyond what enters them.
"""

from collections import deque
from typing import Final, NamedTuple

from federator.protocol.messages.steering import LOAD_EVERY_MS, LinkLoad, Load
from federator.protocol.types import BrokerId

SPAN_MS: Final = 10_000
"""Reported rates of links are means over this time."""

BACKLOG_S: Final = 0.5
"""A queue that drains sooner is no backlog, but noise of the rates."""


class _Report(NamedTuple):
    epoch: int
    at_ms: int
    queues: dict[BrokerId, int]  # bytes, by neighbour


class Backlogs:
    """The queues that agents reported in the last ``SPAN_MS``."""

    def __init__(self) -> None:
        self._reports: dict[BrokerId, deque[_Report]] = {}

    def take(self, load: Load) -> None:
        """Take an agent's report."""
        samples = self._reports.setdefault(load.broker, deque(maxlen=1 + SPAN_MS // LOAD_EVERY_MS))
        if samples and (samples[-1].epoch != load.epoch or samples[-1].at_ms >= load.at_ms):
            samples.clear()
        queues = {link.neighbour: link.queue for link in load.links}
        samples.append(_Report(load.epoch, load.at_ms, queues))

    def draining(self, loads: list[Load]) -> float:
        """bit/s by which all queues of those agents shrink, since each was at its longest."""
        self._reports = {load.broker: self._reports[load.broker] for load in loads}
        return sum(self._shrinks(load.broker, link) for load in loads for link in load.links)

    def _shrinks(self, broker: BrokerId, link: LinkLoad) -> float:
        samples = self._reports[broker]
        was_bytes, was_ms = max((at.queues.get(link.neighbour, 0), at.at_ms) for at in samples)
        if 8 * was_bytes < BACKLOG_S * link.rate or samples[-1].at_ms <= was_ms:
            return 0.0
        return 8_000 * (was_bytes - link.queue) / (samples[-1].at_ms - was_ms)

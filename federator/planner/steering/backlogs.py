"""What waits before links, and how fast it drains: a crowd that leaves is no reason for more buses.

A link that was jammed goes on carrying all it can after flows left it, until its queue is empty,
and so may links behind it. What they carry then is told, and is nobody's rate. So what leaves
queues beyond what enters them, wherever they are, may be what links carry beyond their flows.
"""

from collections import deque
from typing import Final, NamedTuple

from federator.protocol.messages.steering import LOAD_EVERY_MS, LinkLoad, Load
from federator.protocol.types import BrokerId

SPAN_MS: Final = 10_000
"""Rates of links are means of so long."""

BACKLOG_S: Final = 0.5
"""What leaves sooner is no backlog, but the noise of rates."""


class _Told(NamedTuple):
    epoch: int
    at_ms: int
    queues: dict[BrokerId, int]  # bytes, by neighbour


class Backlogs:
    """The queues that agents told in the last ``SPAN_MS``."""

    def __init__(self) -> None:
        self._told: dict[BrokerId, deque[_Told]] = {}

    def take(self, load: Load) -> None:
        """Take what an agent tells."""
        told = self._told.setdefault(load.broker, deque(maxlen=1 + SPAN_MS // LOAD_EVERY_MS))
        if told and (told[-1].epoch != load.epoch or told[-1].at_ms >= load.at_ms):
            told.clear()
        queues = {each.neighbour: each.queue for each in load.links}
        told.append(_Told(load.epoch, load.at_ms, queues))

    def draining(self, loads: list[Load]) -> float:
        """bit/s by which all queues of those agents shrink, since each was the longest."""
        self._told = {load.broker: self._told[load.broker] for load in loads}
        return sum(self._shrinks(load.broker, each) for load in loads for each in load.links)

    def _shrinks(self, broker: BrokerId, link: LinkLoad) -> float:
        told = self._told[broker]
        was_bytes, was_ms = max((at.queues.get(link.neighbour, 0), at.at_ms) for at in told)
        if 8 * was_bytes < BACKLOG_S * link.rate or told[-1].at_ms <= was_ms:
            return 0.0
        return 8_000 * (was_bytes - link.queue) / (told[-1].at_ms - was_ms)

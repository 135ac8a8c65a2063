"""What arrived at one subscriber: every publication counted exactly, every delay measured.

Each payload begins with a stamp (run, number, time sent), read on the same machine's monotonic
clock at both ends, so a delay needs no synchronised clocks, and losses, duplicates and changes of
order are facts rather than estimates.
"""

import struct
from array import array
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Final

from federator.protocol.telemetry.sketch import sketch

_STAMP = struct.Struct(">QQQ")
STAMP_BYTES = _STAMP.size

DELAYS_KEPT_MAX: Final = 10_000
"""Runs with more publications keep the histogram alone."""


def stamped(run: int, number: int, sent_ns: int, *, payload_bytes: int) -> bytes:
    """A payload that says which publication it is and when it left."""
    return _STAMP.pack(run, number, sent_ns).ljust(payload_bytes, b".")


@dataclass(frozen=True, slots=True)
class Delays:
    """All delays of one subscriber in one run, in microseconds: see ``metric_records.Sketch``."""

    base_us: int = 0
    sum_us: int = 0
    min_us: int = 0
    max_us: int = 0
    buckets: tuple[tuple[int, int], ...] = ()
    each_us: tuple[int, ...] = ()  # every delay in order of arrival, unless there are too many


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What one subscriber got in one run. Delays are client to client, in milliseconds."""

    sent: int  # publications that left the publisher
    received: int  # publications that arrived, each counted once
    duplicates: int  # copies beyond the first
    disordered: int  # first copies that came after a later publication
    foreign: int  # messages on our topic that we did not send, or with another length
    delay_ms_mean: float
    delay_ms_deviation: float
    delay_ms_min: float
    delay_ms_p50: float
    delay_ms_p99: float
    delay_ms_max: float
    # Time from sending the first to having each further ``step`` publications.
    completed_ms: tuple[float, ...] = ()
    delays: Delays = Delays()  # all of them

    @property
    def lost(self) -> int:
        """Publications that never arrived."""
        return self.sent - self.received

    @property
    def exact(self) -> bool:
        """Each publication arrived once, in order, and nothing else did."""
        return self.lost == self.duplicates == self.disordered == self.foreign == 0


class Tally:
    """Counts one run's arrivals at one subscriber."""

    def __init__(self, run: int, publications: int, *, payload_bytes: int, step: int = 0) -> None:
        self._run = run
        self._payload_bytes = payload_bytes
        self._seen = bytearray(publications)
        self._delays_ms = array("d")
        self._latest = -1
        self._step = step
        self._begun_ns: int | None = None
        self._completed_ms: list[float] = []
        self.received = 0
        self.duplicates = 0
        self.disordered = 0
        self.foreign = 0

    def has(self, number: int) -> bool:
        """Whether publication ``number`` arrived."""
        return bool(self._seen[number])

    def arrived(self, payload: bytes, now_ns: int) -> None:
        """Count one message."""
        if len(payload) != self._payload_bytes:
            self.foreign += 1
            return
        run, number, sent_ns = _STAMP.unpack_from(payload)
        if run != self._run or number >= len(self._seen):
            self.foreign += 1
            return
        if self._seen[number]:
            self.duplicates += 1
            return
        self._seen[number] = 1
        self.received += 1
        self._delays_ms.append((now_ns - sent_ns) / 1e6)
        if number == 0:
            self._begun_ns = sent_ns
        if self._step and self._begun_ns is not None and self.received % self._step == 0:
            self._completed_ms.append((now_ns - self._begun_ns) / 1e6)
        if number < self._latest:
            self.disordered += 1
        self._latest = max(self._latest, number)

    def arrivals(self, sent: int) -> Arrivals:
        """The counts so far, and the delays' distribution (all zero when nothing arrived)."""
        ordered = sorted(self._delays_ms) or [0.0]
        last = len(ordered) - 1
        return Arrivals(
            sent=sent,
            received=self.received,
            duplicates=self.duplicates,
            disordered=self.disordered,
            foreign=self.foreign,
            delay_ms_mean=fmean(ordered),
            delay_ms_deviation=pstdev(ordered),
            delay_ms_min=ordered[0],
            delay_ms_p50=ordered[round(last * 0.50)],
            delay_ms_p99=ordered[round(last * 0.99)],
            delay_ms_max=ordered[last],
            completed_ms=tuple(self._completed_ms),
            delays=self._delays(),
        )

    def _delays(self) -> Delays:
        each_us = tuple(round(1_000 * delay_ms) for delay_ms in self._delays_ms)
        if not each_us:
            return Delays()
        made = sketch((delay_us, 1) for delay_us in each_us)
        return Delays(
            base_us=made.base_us,
            sum_us=made.sum_us,
            min_us=made.min_us,
            max_us=made.max_us,
            buckets=tuple(made.buckets),
            each_us=each_us if len(each_us) <= DELAYS_KEPT_MAX else (),
        )

"""The two kinds of load: as much as gets through, and so many a second.

**Saturation** is a closed loop with credit: never more than ``window`` publications are on their
way, so a queue of the broker (1,000 messages by default, then it drops silently) overflows only
when the window is too large for the system under test. **Pacing** is an open loop: publications
leave when they are due, whatever became of those before, and carry the time at which they left.

The generator is one thread that sleeps between ticks. Waking for each of Mosquitto's one-message
writes would cost a processor that the brokers under test need.
"""

import select
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from federator.bench.wire import Wire

TICK_S: Final = 0.0005
"""Between looks at the sockets at saturation with QoS 0. With QoS 1 the broker hands out 20
messages per acknowledgement, so every arrival wakes us."""

CREDIT_SHARE: Final = 8
"""Credit is spent when this part of the window is free: fewer, longer writes."""

SILENCE_S: Final = 2.0
"""After the last publication: what has not arrived when nothing came for so long is lost."""

LINGER_S: Final = 0.15
"""After the last arrival: time for duplicates to show up."""

LATE_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one run.

    Attributes:
        sent: Publications that left.
        rate: Arrivals per second, over the counted part of the run.
        lost: Never arrived.
        cpu_share: Processor time of the generator over wall time.
        late: Publications that left more than ``LATE_S`` after they were due.
        delay_us_p50: From leaving to arrival, in microseconds; 0 at saturation.
        delay_us_p99: Likewise.
    """

    sent: int
    rate: float
    lost: int
    duplicates: int
    disordered: int
    foreign: int
    cpu_share: float
    late: int = 0
    delay_us_p50: float = 0.0
    delay_us_p99: float = 0.0

    @property
    def exact(self) -> bool:
        """Each publication arrived once and nothing else did."""
        return not (self.lost or self.duplicates or self.foreign)


def saturate(wire: Wire, *, run: int, window: int, seconds: float, warm_up_s: float) -> Outcome:
    """Publish as fast as credit allows; count arrivals between ``warm_up_s`` and the end."""
    wire.begin(run)
    stopwatch = _Stopwatch()
    start = time.monotonic()
    counted_from, end = start + warm_up_s, start + warm_up_s + seconds
    counted: tuple[float, int] | None = None
    while (now := time.monotonic()) < end:
        if counted is None and now >= counted_from:
            counted = now, wire.ledger.received
        credit = window - wire.outstanding
        if credit >= window // CREDIT_SHARE:
            wire.send(credit)
        if wire.layout.qos:
            select.select([wire.subscriber, wire.publisher], [], [], TICK_S)
        else:
            time.sleep(TICK_S)
        wire.receive()
    assert counted is not None, "the warm-up outlasted the run"
    rate = (wire.ledger.received - counted[1]) / (now - counted[0])
    cpu_share = stopwatch.share()
    _drain(wire)
    return _outcome(wire, rate, cpu_share)


def pace(wire: Wire, *, run: int, rate: float, seconds: float) -> Outcome:
    """Publish ``rate`` a second, evenly spaced; measure every delay."""
    wire.begin(run)
    stopwatch = _Stopwatch()
    total = int(rate * seconds)
    delays = [np.zeros(0)]
    late = 0
    start = time.monotonic()

    def note() -> None:
        rows = wire.receive()
        ours = rows[rows["run"] == run]
        if len(ours):
            delays.append(wire.latest_ns - ours["sent_ns"].astype(np.float64))

    while wire.sent < total:
        now = time.monotonic()
        due = min(total, int((now - start) * rate) + 1)
        if due > wire.sent:
            late += max(0, int((now - LATE_S - start) * rate) + 1 - wire.sent)
            wire.send(due - wire.sent)
        wait_s = start + wire.sent / rate - time.monotonic()
        if select.select([wire.subscriber], [], [], max(0.0, wait_s))[0]:
            note()
    elapsed = time.monotonic() - start
    cpu_share = stopwatch.share()
    _drain(wire, note)
    us = np.concatenate(delays) / 1_000
    p50, p99 = np.percentile(us, (50, 99)) if len(us) else (0.0, 0.0)
    counts = _outcome(wire, wire.sent / elapsed, cpu_share)
    return replace(counts, late=late, delay_us_p50=float(p50), delay_us_p99=float(p99))


def _drain(wire: Wire, receive: Callable[[], object] | None = None) -> None:
    """Receive what is on its way, until all is there or nothing comes for ``SILENCE_S``."""
    receive = receive or wire.receive
    heard = time.monotonic()
    while not wire.idle and time.monotonic() - heard < SILENCE_S:
        before = wire.latest_ns, wire.acknowledged
        wire.send(0)
        select.select([wire.subscriber, wire.publisher], [], [], TICK_S)
        receive()
        if (wire.latest_ns, wire.acknowledged) != before:
            heard = time.monotonic()
    end = time.monotonic() + LINGER_S
    while (left := end - time.monotonic()) > 0:
        select.select([wire.subscriber], [], [], left)
        receive()


def _outcome(wire: Wire, rate: float, cpu_share: float) -> Outcome:
    ledger = wire.ledger
    return Outcome(
        sent=wire.sent,
        rate=rate,
        lost=ledger.lost(wire.sent),
        duplicates=ledger.duplicates,
        disordered=ledger.disordered,
        foreign=ledger.foreign,
        cpu_share=cpu_share,
    )


class _Stopwatch:
    """Our processor time beside wall time."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def share(self) -> float:
        """Processor time per second since this was made."""
        return (time.process_time() - self._cpu) / (time.monotonic() - self._wall)

"""The load generator as a child process: takes orders from the bench, runs load, reports counts.

One process per system under test, so that nothing but load shares its interpreter. Its orders come
one per line on stdin: ``connect`` once, then runs; it ends with its stdin. There are two kinds of
load: as much as gets through, and so many a second.

**Saturation** is a closed loop with credit: never more than ``window`` publications are on their
way, so a queue of the broker (1,000 messages by default, then it drops silently) overflows only
when the window is too large for the system under test. **Pacing** is an open loop: publications
leave when they are due, whatever became of those before, and carry the time at which they left.

The generator is one thread that sleeps between ticks. Waking for each of Mosquitto's one-message
writes would cost a processor that the brokers under test need.
"""

import gc
import json
import select
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

import numpy as np

from federator.errors import LinkError
from lab.bench.wire import Layout, Wire, topics
from lab.grid.processes.children import Helper, answer, python
from lab.grid.processes.precise_loop import sharpen_timers

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
    """What became of one run."""

    sent: int  # publications that left
    rate: float  # arrivals per second, over the counted part of the run
    lost: int  # never arrived
    duplicates: int
    disordered: int
    foreign: int
    cpu_share: float  # processor time of the generator over wall time
    late: int = 0  # publications that left more than ``LATE_S`` after they were due
    delay_us_p50: float = 0.0  # from leaving to arrival, in microseconds; 0 at saturation
    delay_us_p99: float = 0.0  # likewise

    @property
    def exact(self) -> bool:
        return not (self.lost or self.duplicates or self.foreign)


def saturate(
    wires: list[Wire], *, run: int, window: int, seconds: float, warm_up_s: float
) -> Outcome:
    """Publish as fast as credit allows; count arrivals for ``seconds`` after ``warm_up_s``.

    Of ``window``, publications on their way at most, each wire has its part.
    """
    for wire in wires:
        wire.begin(run)
    our_share = _stopwatch()
    start = time.monotonic()
    counted_from, end = start + warm_up_s, start + warm_up_s + seconds
    counted: tuple[float, int] | None = None
    each = max(1, window // len(wires))
    while (now := time.monotonic()) < end:
        if counted is None and now >= counted_from:
            counted = now, _received(wires)
        for wire in wires:
            credit = each - wire.outstanding
            if credit >= max(1, each // CREDIT_SHARE):
                wire.send(credit)
        if wires[0].layout.qos:
            ready = _ready(wires, TICK_S) or wires
        else:
            time.sleep(TICK_S)
            ready = wires
        for wire in ready:
            wire.receive()
    assert counted is not None, "the warm-up outlasted the run"
    rate = (_received(wires) - counted[1]) / (now - counted[0])
    cpu_share = our_share()
    _drain(wires)
    return _outcome(wires, rate, cpu_share)


def pace(wires: list[Wire], *, run: int, rate: float, seconds: float) -> Outcome:
    """Publish ``rate`` a second in all, evenly spaced, in turn; measure every delay."""
    for wire in wires:
        wire.begin(run)
    our_share = _stopwatch()
    total = int(rate * seconds)
    delays = [np.zeros(0)]
    sent = late = 0
    start = time.monotonic()

    def note(wire: Wire) -> None:
        rows = wire.receive()
        ours = rows[rows["run"] == run]
        if len(ours):
            delays.append(wire.latest_ns - ours["sent_ns"].astype(np.float64))

    while sent < total:
        now = time.monotonic()
        due = min(total, int((now - start) * rate) + 1)
        if due > sent:
            late += max(0, int((now - LATE_S - start) * rate) + 1 - sent)
            for turn in range(sent, min(due, sent + len(wires))):
                wires[turn % len(wires)].send(len(range(turn, due, len(wires))))
            sent = due
        wait_s = start + sent / rate - time.monotonic()
        for wire in _ready(wires, max(0.0, wait_s)):
            note(wire)
    elapsed = time.monotonic() - start
    cpu_share = our_share()
    _drain(wires, note)
    us = np.concatenate(delays) / 1_000
    p50, p99 = np.percentile(us, (50, 99)) if len(us) else (0.0, 0.0)
    counts = _outcome(wires, sent / elapsed, cpu_share)
    return replace(counts, late=late, delay_us_p50=float(p50), delay_us_p99=float(p99))


def _drain(wires: list[Wire], receive: Callable[[Wire], object] = Wire.receive) -> None:
    heard = time.monotonic()
    while not all(w.idle for w in wires) and time.monotonic() - heard < SILENCE_S:
        before = [(wire.latest_ns, wire.acknowledged) for wire in wires]
        for wire in wires:
            wire.send(0)
        for wire in _ready(wires, TICK_S) or wires:
            receive(wire)
        if [(wire.latest_ns, wire.acknowledged) for wire in wires] != before:
            heard = time.monotonic()
    end = time.monotonic() + LINGER_S
    while (left := end - time.monotonic()) > 0:
        for wire in _ready(wires, left):
            receive(wire)


def _ready(wires: list[Wire], wait_s: float) -> list[Wire]:
    sockets = [each for wire in wires for each in (wire.subscriber, wire.publisher)]
    readable = set(select.select(sockets, [], [], wait_s)[0])
    return [wire for wire in wires if wire.subscriber in readable or wire.publisher in readable]


def _received(wires: list[Wire]) -> int:
    return sum(wire.ledger.received for wire in wires)


def _outcome(wires: list[Wire], rate: float, cpu_share: float) -> Outcome:
    ledgers = [wire.ledger for wire in wires]
    return Outcome(
        sent=sum(wire.sent for wire in wires),
        rate=rate,
        lost=sum(wire.ledger.lost(wire.sent) for wire in wires),
        duplicates=sum(ledger.duplicates for ledger in ledgers),
        disordered=sum(ledger.disordered for ledger in ledgers),
        foreign=sum(ledger.foreign for ledger in ledgers),
        cpu_share=cpu_share,
    )


def _stopwatch() -> Callable[[], float]:
    wall, cpu = time.monotonic(), time.process_time()
    return lambda: (time.process_time() - cpu) / (time.monotonic() - wall)


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a system under test takes publications in, and where it hands them out."""

    publish_at: tuple[str, int]
    subscribe_at: tuple[str, int]


class Generator(Helper):
    """The bench's side of one load generator, with ``pairs`` of a publisher and a subscriber.

    Its ``name`` distinguishes client ids and logs.
    """

    def __init__(self, folder: Path, name: str, *, pairs: int) -> None:
        super().__init__(python("lab.bench.generator"), log=folder / f"load-{name}.log")
        self._name = name
        self._pairs = pairs
        self._runs = count(1)

    async def connect(self, ends: Ends, layout: Layout) -> None:
        await self.start()
        shape = {"topic": layout.topic, "qos": layout.qos, "payload_bytes": layout.payload_bytes}
        await self.ask({"name": self._name, "pairs": self._pairs, **asdict(ends), **shape})

    async def run(self, load: str, **how: float) -> Outcome:
        return Outcome(**await self.ask({load: {"run": next(self._runs), **how}}))


def _serve() -> None:
    order = json.loads(sys.stdin.readline())
    wires = [
        Wire.connect(
            Layout(topic, order["qos"], order["payload_bytes"]),
            publish_at=tuple(order["publish_at"]),
            subscribe_at=tuple(order["subscribe_at"]),
            name=f"{order['name']}-{number}",
        )
        for number, topic in enumerate(topics(order["topic"], order["pairs"]))
    ]
    answer({})
    for line in sys.stdin:
        order = json.loads(line)
        gc.collect()
        gc.disable()  # a collection is a delay of ours, not of the system under test
        ((load, how),) = order.items()
        outcome = saturate(wires, **how) if load == "saturate" else pace(wires, **how)
        gc.enable()
        answer(asdict(outcome))
    for wire in wires:
        wire.close()


def main() -> None:
    sharpen_timers()
    try:
        _serve()
    except LinkError as error:
        answer({"error": f"{' '.join(sys.argv)}: {error}"})


if __name__ == "__main__":
    main()

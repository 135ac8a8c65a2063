"""Measurement clients: one publisher and some subscribers, in a child process of their own. What
arrives at a subscriber is counted exactly, and every delay measured.

They are ordinary MQTT v5 clients: they subscribe a filter and publish on a topic. They share one
clock and one interpreter, and nothing else runs in it, so a delay contains what the system under
test adds and the client library's own tens of microseconds. Each payload begins with a stamp (run,
number, time sent), read on the same machine's monotonic clock at both ends, so a delay needs no
synchronised clocks, and losses, duplicates and changes of order are facts rather than estimates.

The child takes one order per line on stdin: ``connect`` once, then any number of ``run``; it ends
with its stdin. ``ClientProcess`` is the parent's side of it.
"""

import asyncio
import contextlib
import gc
import random
import struct
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, Final

import msgspec
import structlog
import uvloop
from mqtt5 import QoS, TopicFilter

from federator.errors import LinkError
from federator.protocol.telemetry.sketch import sketch
from federator.runtime.mqtt.link import Endpoint, Inbound, LinkObserver, MqttLink
from lab.grid.processes.children import Helper, answer, orders, python
from lab.grid.processes.precise_loop import go_first

_STAMP = struct.Struct(">QQQ")
STAMP_BYTES = _STAMP.size

DELAYS_KEPT_MAX: Final = 10_000
"""Runs with more publications keep the histogram alone."""


def stamped(run: int, number: int, sent_ns: int, *, payload_bytes: int) -> bytes:
    return _STAMP.pack(run, number, sent_ns).ljust(payload_bytes, b".")


def run_of(payload: bytes) -> int:
    run: int = _STAMP.unpack_from(payload)[0]
    return run


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
        return self.sent - self.received

    @property
    def exact(self) -> bool:
        return self.lost == self.duplicates == self.disordered == self.foreign == 0

    def __str__(self) -> str:
        return (
            f"{self.lost} lost, {self.duplicates} twice, {self.disordered} out of order, "
            f"{self.foreign} foreign"
        )


class Tally:
    """Counts one run's arrivals at one subscriber."""

    def __init__(self, run: int, publications: int, *, payload_bytes: int, step: int = 0) -> None:
        self._run = run
        self._payload_bytes = payload_bytes
        self._seen = bytearray(publications)
        self.delays_ms = array("d")
        self._latest = -1
        self._step = step
        self._begun_ns: int | None = None
        self._completed_ms: list[float] = []
        self.received = self.duplicates = self.disordered = self.foreign = 0

    def has(self, number: int) -> bool:
        return bool(self._seen[number])

    def arrived(self, payload: bytes, now_ns: int) -> None:
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
        self.delays_ms.append((now_ns - sent_ns) / 1e6)
        if number == 0:
            self._begun_ns = sent_ns
        if self._step and self._begun_ns is not None and self.received % self._step == 0:
            self._completed_ms.append((now_ns - self._begun_ns) / 1e6)
        if number < self._latest:
            self.disordered += 1
        self._latest = max(self._latest, number)

    def arrivals(self, sent: int) -> Arrivals:
        """The counts so far, and the delays' distribution (all zero when nothing arrived)."""
        ordered = sorted(self.delays_ms) or [0.0]
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
        each_us = tuple(round(1_000 * delay_ms) for delay_ms in self.delays_ms)
        if not each_us:
            return Delays()
        kept = each_us if len(each_us) <= DELAYS_KEPT_MAX else ()
        made = msgspec.structs.asdict(sketch((delay_us, 1) for delay_us in each_us))
        return Delays(**made | {"buckets": tuple(made["buckets"])}, each_us=kept)


async def drain(tallies: Sequence[Tally], publications: int, *, silence_s: float) -> None:
    """Wait until all ``publications`` arrived everywhere, or nothing comes for so long."""
    received, since_s = -1, time.monotonic()
    while (count := sum(tally.received for tally in tallies)) < publications * len(tallies):
        if count != received:
            received, since_s = count, time.monotonic()
        elif time.monotonic() - since_s > silence_s:
            break
        await asyncio.sleep(POLL_S)


CONNECT_TIMEOUT_S: Final = 30.0
SILENCE_S: Final = 5.0
"""After the last publication: what has not arrived when nothing came for so long is lost."""

LINGER_S: Final = 0.5
"""After the last arrival: time for duplicates to show up."""

SETTLE_S: Final = 0.2
"""Before the first publication: with a SUBACK unacknowledged, Nagle's algorithm holds it back."""

PROGRESS_S: Final = 0.25
POLL_S: Final = 0.002
FIRST_PUBLISHER: Final = "publisher"
FILTERS_AT_ONCE: Final = 200
"""Of a SUBSCRIBE: the broker keeps 1,000 log lines for an agent that does not keep up."""


Place = tuple[str, int]
"""Host and port where a client connects."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """One run's publications by one of the publishers; see ``Scenario`` for the other fields."""

    publications: int
    gap_ms: tuple[float, float]
    payload_bytes: int
    seed: int
    publisher: str = FIRST_PUBLISHER
    step: int = 0  # note when each so many publications are complete


class ClientProcess(Helper):
    """Measurement clients in a child process; ``name`` is in its clients' ids and its log's."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(python("lab.grid.clients"), log=folder / f"clients-{name}.log")
        self._name = name

    async def connect(
        self, publishers: dict[str, Place], subscribers: dict[str, Place], topic: str, *, qos: int
    ) -> None:
        """Connect clients by name; returns when all are connected and subscribed."""
        clients = {"publishers": publishers, "subscribers": subscribers}
        await self.ask({"name": self._name, **clients, "topic": topic, "qos": qos})

    async def run(
        self, traffic: Traffic, *, progress: Callable[[int], None] = lambda sent: None
    ) -> dict[str, Arrivals]:
        await self.tell(asdict(traffic))
        while "arrivals" not in (message := await self.hear()):
            progress(message["sent"])
        return msgspec.convert(message["arrivals"], dict[str, Arrivals])


class Client(LinkObserver):
    """One connection; what arrives on it is counted exactly while it has a ``tally``.

    Attributes:
        received: Publications that came, of all runs.
        at_s: Monotonic times at which they came, noted where there is a list.
        subscribed: The broker granted what was asked of it.
        arrival: Set when something came.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        client_id: str,
        *filters: str,
        qos: int = 1,
        **session: Any,  # noqa: ANN401  # of MqttLink
    ) -> None:
        self.tally: Tally | None = None
        self.received = 0
        self.at_s: list[float] | None = None
        self.subscribed = asyncio.Event()
        self.arrival = asyncio.Event()
        session = {"session_expiry_s": 600, **session}
        self.link = MqttLink(endpoint, self, client_id=client_id, **session)
        self.subscribe(filters, qos=qos)

    def subscribe(self, filters: Sequence[str], *, qos: int = 1) -> None:
        for at in range(0, len(filters), FILTERS_AT_ONCE):
            some = filters[at : at + FILTERS_AT_ONCE]
            self.link.subscribe(TopicFilter(each, max_qos=QoS(qos)) for each in some)

    def on_subscribed(self, link: MqttLink) -> None:
        self.subscribed.set()

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        now_ns = time.monotonic_ns()
        self.received += len(publishes)
        if self.tally is not None:
            for packet, _, _ in publishes:
                self.tally.arrived(packet.payload or b"", now_ns)
        if self.at_s is not None:
            self.at_s.append(now_ns / 1e9)
        self.arrival.set()

    def longest_gap_s(self, since_s: float, until_s: float) -> float:
        ends = [since_s, *(at for at in self.at_s or () if since_s < at < until_s), until_s]
        return max(after - before for before, after in pairwise(ends))


class _Experiment:
    """The clients of one child process."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._topic: str = order["topic"]
        self._qos: int = order["qos"]
        self._runs = 0
        self._arrival = asyncio.Event()

        def clients(role: str, *filters: str) -> dict[str, Client]:
            how = {"qos": self._qos, "session_expiry_s": 0}
            made = {
                name: Client(
                    Endpoint(*place), f"grid-{order['name']}-{role}-{name}", *filters, **how
                )
                for name, place in order[f"{role}s"].items()
            }
            for client in made.values():
                client.arrival = self._arrival
            return made

        self._subscribers = clients("subscriber", self._topic)
        self._publishers = clients("publisher")

    @property
    def clients(self) -> list[Client]:
        return [*self._subscribers.values(), *self._publishers.values()]

    async def connected(self) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            for client in self.clients:
                await client.subscribed.wait()

    async def run(self, traffic: Traffic, report: Callable[[int], None]) -> dict[str, Arrivals]:
        self._runs += 1
        tallies = {}
        for name, client in self._subscribers.items():
            size, step = traffic.payload_bytes, traffic.step
            tally = Tally(self._runs, traffic.publications, payload_bytes=size, step=step)
            client.tally = tallies[name] = tally
        await asyncio.sleep(SETTLE_S)
        gc.collect()
        gc.disable()  # a collection is a delay of ours, not of the system under test
        try:
            await self._publish(traffic, list(tallies.values()), report)
            await drain(list(tallies.values()), traffic.publications, silence_s=SILENCE_S)
            await asyncio.sleep(LINGER_S)
        finally:
            gc.enable()
        return {name: tally.arrivals(traffic.publications) for name, tally in tallies.items()}

    async def _publish(
        self, traffic: Traffic, tallies: list[Tally], report: Callable[[int], None]
    ) -> None:
        link = self._publishers[traffic.publisher].link
        rng = random.Random(traffic.seed)
        one_by_one = traffic.gap_ms[1] == 0
        reported = time.monotonic()
        for number in range(traffic.publications):
            await self._publish_one(link, number, traffic.payload_bytes)
            if one_by_one:
                await self._everywhere(number, tallies)
            else:
                await asyncio.sleep(rng.uniform(*traffic.gap_ms) / 1000)
            if time.monotonic() - reported > PROGRESS_S:
                reported = time.monotonic()
                report(number + 1)

    async def _publish_one(self, link: MqttLink, number: int, payload_bytes: int) -> None:
        """Publish; try again for a while when the connection is down or the window full."""
        deadline = time.monotonic() + SILENCE_S
        while time.monotonic() < deadline:
            payload = stamped(self._runs, number, time.monotonic_ns(), payload_bytes=payload_bytes)
            if link.publish(self._topic, payload, qos=self._qos):
                return
            await asyncio.sleep(POLL_S)
        raise LinkError(f"publication {number} not taken: {link.last_error or 'window full'}")

    async def _everywhere(self, number: int, tallies: list[Tally]) -> None:
        """Wait until publication ``number`` arrived at every subscriber, or is lost."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SILENCE_S):
                while not all(tally.has(number) for tally in tallies):
                    self._arrival.clear()
                    await self._arrival.wait()


async def _serve() -> None:
    told = orders()
    experiment = _Experiment(await anext(told))
    async with asyncio.TaskGroup() as tasks:
        links = [
            tasks.create_task(client.link.run(), name=client.link.client_id)
            for client in experiment.clients
        ]
        await experiment.connected()
        answer({"connected": True})
        async for order in told:
            traffic = msgspec.convert(order, Traffic)
            arrivals = await experiment.run(traffic, lambda sent: answer({"sent": sent}))
            answer({"arrivals": {name: asdict(each) for name, each in arrivals.items()}})
        for link in links:
            link.cancel()


def main() -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    go_first()
    uvloop.run(_serve())


if __name__ == "__main__":
    main()

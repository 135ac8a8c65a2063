"""One routing at work on real brokers: everybody's delay, and what it costs in messages and state.

Every publication is followed to every subscriber. The same arrangement under another setting is
the same traffic, so that two routings can be held side by side.

``CHEN2020`` is the seven-node testbed of TBRouting: how long many items take, with and without
shortest path. Data comes in at 6 and its consumer is at 1. Without the shortest path it goes by 7,
4, 3 and 2, as Figure 12 draws it; with it by 4 and 2 (Figure 13). Both times the same brokers and
links are there: for the long path, the links 6-4 and 4-2 cost more. Each broker on the path has a
subscriber which notes when it has 500, 1,000, ... 10,000 items, as the paper's counters do. An item
is published when the one before has arrived everywhere. Node 5 is left out: the paper does not say
what it is linked to. The edge router is 6, by which data comes in: it has a subscriber like all
others on the path.

Source: Chen 2020, 4.2, Figures 11 to 16.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from federator.protocol.parameters import Strategy
from federator.protocol.types import BrokerId
from lab.grid.clients import FIRST_PUBLISHER, Arrivals, ClientProcess, Traffic
from lab.grid.running import RunningGrid
from lab.grid.scenario import Arrangement
from lab.grid.topology import (
    Graph,
    Link,
    LinkCosts,
    Statuses,
    destinations_fault,
    expected_mesh,
    mesh_fault,
    total_control_sent,
)

TOPIC: Final = "grid/trial"
SEED: Final = 2020

Progress = Callable[[str, int, int], None]
"""Called with what is under way, how much of it is done, and how much there is."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How the brokers route."""

    name: str  # for people
    strategy: Strategy
    redundancy: int  # parents per broker
    costs: LinkCosts = field(default_factory=dict[Link, int])  # of links that do not cost 1


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one subscriber got of one publisher."""

    publisher: BrokerId  # the brokers they are connected to
    subscriber: BrokerId
    hops: int  # links between them on a shortest path
    floor_ms: float  # the sum of the delays of these links: what physics alone costs
    arrivals: Arrivals

    @property
    def added_ms(self) -> float:
        return self.arrivals.delay_ms_mean - self.floor_ms

    @property
    def added_per_hop_ms(self) -> float:
        """Mean delay beyond the floor, per link; all of it when there is no link."""
        return self.added_ms / max(self.hops, 1)


@dataclass(frozen=True, slots=True)
class State:
    """Entries that an agent holds, on average over the agents."""

    cores: float
    filters: float
    children: float
    destinations: float

    @property
    def total(self) -> float:
        return self.cores + self.filters + self.children + self.destinations


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """What one setting gave."""

    setting: Setting
    pairs: tuple[Delivery, ...]  # every publisher with every subscriber on another broker
    publications: int  # of all publishers
    data_messages: int  # frames that agents sent for them
    control_messages: int  # without hellos, while the publications were made,
    seconds: float  # in so much time
    settling_messages: int  # control messages without hellos from the start until all was routed
    state: State  # what the agents hold
    faults: tuple[str, ...]  # for each pair whose publications did not come once and in order

    @property
    def delay_ms(self) -> float:
        return fmean(pair.arrivals.delay_ms_mean for pair in self.pairs)

    @property
    def floor_ms(self) -> float:
        return fmean(pair.floor_ms for pair in self.pairs)

    @property
    def added_ms_per_hop(self) -> float:
        """Mean delay beyond the floor over the mean number of hops."""
        return (self.delay_ms - self.floor_ms) / fmean(pair.hops for pair in self.pairs)

    @property
    def worst_p99_ms(self) -> float:
        return max(pair.arrivals.delay_ms_p99 for pair in self.pairs)

    @property
    def data_per_publication(self) -> float:
        return self.data_messages / self.publications


def publications_of(
    arrangement: Arrangement, publications: int, seed: int, *, publisher: str = FIRST_PUBLISHER
) -> Traffic:
    gap_ms, payload_bytes, step = arrangement.gap_ms, arrangement.payload_bytes, arrangement.step
    return Traffic(publications, gap_ms, payload_bytes, seed, publisher=publisher, step=step)


def deliveries(
    arrangement: Arrangement, publisher: BrokerId, arrivals: Mapping[str, Arrivals]
) -> Iterator[Delivery]:
    for subscriber in arrangement.subscribers:
        if subscriber != publisher or arrangement.local:
            way = arrangement.way(publisher, subscriber)
            yield Delivery(publisher, subscriber, *way, arrivals[str(subscriber)])


async def run_trial(
    arrangement: Arrangement, setting: Setting, folder: Path, *, progress: Progress
) -> TrialOutcome:
    """Start everything in ``folder``, which exists; publish, count, and stop everything.

    Raises ``LinkError``: the grid did not start, or does not route as its graph says.
    """
    started, total = count(1), 2 * len(arrangement.grid.ids)
    running = RunningGrid(
        arrangement.grid,
        folder,
        link_delay_ms=arrangement.link_delay_ms,
        redundancy=setting.redundancy,
        link_costs=setting.costs,
        agent_options={"routing": {"strategy": setting.strategy.value}},
        broker_options=("sys_interval 1",),
        progress=lambda what: progress(f"{setting.name}: brokers and agents", next(started), total),
    )
    async with running, ClientProcess(folder, "trial") as clients:
        return await _measure(arrangement, setting, running, clients, progress)


async def _measure(
    arrangement: Arrangement,
    setting: Setting,
    running: RunningGrid,
    clients: ClientProcess,
    progress: Progress,
) -> TrialOutcome:
    at = {str(i): broker.place for i, broker in running.brokers.items()}
    await clients.connect(
        {str(i): at[str(i)] for i in arrangement.publishers},
        {str(i): at[str(i)] for i in arrangement.subscribers},
        TOPIC,
        qos=arrangement.qos,
    )
    before = await running.until(lambda statuses: _unsettled(arrangement, setting, statuses))
    pairs: list[Delivery] = []
    begun_s = time.monotonic()
    publications = arrangement.runs[0]
    everything = len(arrangement.publishers) * publications

    def advance(done: int, sent: int) -> None:
        progress(f"{setting.name}: publications", done + sent, everything)

    for turn, publisher in enumerate(arrangement.publishers):
        arrivals = await clients.run(
            publications_of(arrangement, publications, SEED + turn, publisher=str(publisher)),
            progress=partial(advance, turn * publications),
        )
        pairs += deliveries(arrangement, publisher, arrivals)
    seconds = time.monotonic() - begun_s
    after = await running.statuses()
    return TrialOutcome(
        setting=setting,
        pairs=tuple(pairs),
        publications=everything,
        data_messages=_frames(after) - _frames(before),
        control_messages=_control(after) - _control(before),
        seconds=seconds,
        settling_messages=_control(before),
        state=_state(after),
        faults=tuple(
            f"from {pair.publisher} to {pair.subscriber}: {pair.arrivals}"
            for pair in pairs
            if not pair.arrivals.exact
        ),
    )


def _unsettled(arrangement: Arrangement, setting: Setting, statuses: Statuses) -> str | None:
    graph, subscribers = arrangement.grid, arrangement.subscribers
    if setting.strategy is Strategy.SHORTEST_PATH:
        return destinations_fault(statuses, TOPIC, graph, subscribers, setting.costs)
    mesh = expected_mesh(graph, subscribers, redundancy=setting.redundancy)
    return mesh_fault(statuses, TOPIC, mesh)


def _frames(statuses: Statuses) -> int:
    return sum(status["counters"]["data"]["frames_out"] for status in statuses.values())


def _control(statuses: Statuses) -> int:
    sent = total_control_sent(statuses)
    return sum(count for kind, count in sent.items() if kind != "hello")


def _state(statuses: Statuses) -> State:
    def mean(count: Callable[[Mapping[str, Any]], int]) -> float:
        return fmean(count(status) for status in statuses.values())

    return State(
        cores=mean(lambda status: len(status["cores"])),
        filters=mean(lambda status: status["meshes_total"]),
        children=mean(lambda status: sum(len(mesh["children"]) for mesh in status["meshes"])),
        destinations=mean(lambda status: status["destinations_total"]),
    )


TESTBED: Final = Graph(((6, 7), (4, 7), (3, 4), (2, 3), (1, 2), (4, 6), (2, 4)))
SOURCE: Final = BrokerId(6)
CONSUMER: Final = BrokerId(1)
EDGE_ROUTER: Final = SOURCE
ITEMS: Final = 10_000
STEP: Final = 500
KNEE: Final = 1.5
LINK_DELAY_MS: Final = 1.0

WITHOUT: Final = Setting(
    "without shortest path",
    Strategy.SHORTEST_PATH,
    redundancy=1,
    costs={Link(BrokerId(4), BrokerId(6)): 10, Link(BrokerId(2), BrokerId(4)): 10},
)
WITH: Final = Setting("with shortest path", Strategy.SHORTEST_PATH, redundancy=1)
BOTH: Final = (WITHOUT, WITH)

CHEN2020: Final = Arrangement(
    grid=TESTBED,
    link_delay_ms=LINK_DELAY_MS,
    subscribers=(CONSUMER,),
    publishers=(SOURCE,),
    runs=(ITEMS,),
    gap_ms=(0.0, 0.0),
    step=STEP,
)


def path_of(setting: Setting) -> tuple[BrokerId, ...]:
    return TESTBED.path(SOURCE, CONSUMER, setting.costs)


@dataclass(frozen=True, slots=True)
class Completion:
    """Completion times of one setting, in milliseconds, by number of items."""

    consumer: Mapping[int, float]  # at the consumer
    edge_router: Mapping[int, float]  # at the edge router
    average: Mapping[int, float]  # over the brokers on the path


def completion_of(outcome: TrialOutcome, step: int) -> Completion:
    by_broker = {pair.subscriber: pair.arrivals.completed_ms for pair in outcome.pairs}
    sizes = range(min(map(len, by_broker.values())))

    def at(broker: BrokerId) -> dict[int, float]:
        return {step * (n + 1): by_broker[broker][n] for n in sizes}

    return Completion(
        consumer=at(CONSUMER),
        edge_router=at(EDGE_ROUTER),
        average={step * (n + 1): fmean(each[n] for each in by_broker.values()) for n in sizes},
    )


def knee(completed_ms: Mapping[int, float]) -> int | None:
    """The number of items from which each step takes ``KNEE`` times what steps took before.

    Figure 11: "will increase dramatically from a specific point". None when there is no such point.
    """
    sizes = sorted(completed_ms)
    took = [b - a for a, b in pairwise([0.0, *(completed_ms[size] for size in sizes)])]
    for n in range(1, len(took)):
        if min(took[n:]) > KNEE * median(took[:n]):
            return sizes[n - 1]
    return None


def is_faster(short: Completion, long: Completion) -> bool:
    pairs = zip(astuple(short), astuple(long), strict=True)
    return all(
        a and a.keys() == b.keys() and all(a[size] < b[size] for size in a) for a, b in pairs
    )

"""A mesh loses its core under traffic, again and again: what do those who are left feel of it?

Nine real brokers and agents in a grid. Each round has meshes of its own, one for QoS 0 and one for
QoS 1, around a core in the middle of the grid, or at its edge. One client publishes to both at a
steady rate; others subscribe at other brokers, and none of them at the core's. Then the core's
broker is killed, or its agent; or nobody is killed, and a client at a broker of smaller id
subscribes, which makes that one the core. Silences are counted at each subscriber, from before that
on.

Source: docs/protocol.md 7.5.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, product
from pathlib import Path
from typing import Final

from federator.protocol.types import BrokerId
from lab.frame.experiment import Result, Tell, experiment
from lab.frame.settings import setting
from lab.grid.clients import Arrivals, Client, Tally, stamped
from lab.grid.running import RunningGrid
from lab.grid.stage import DEEP, Pages, widened
from lab.grid.streams import PAYLOAD_BYTES, linked, paced, running
from lab.grid.topology import Grid

GRID: Final = Grid(3, 3, first_id=0)
STEADY_S: Final = 0.5
"""Traffic before anything happens."""

LOOKED_BEFORE_S: Final = 0.1
LOOKED_S: Final = 2.0
"""How long is looked for silences: longer than it takes until the successor's mesh stands."""

LINGER_S: Final = 1.0
QOS: Final = (0, 1)
GAP_S_MAX: Final = 0.1


class Blow(StrEnum):
    """What happens to the core."""

    BROKER = "broker"
    AGENT = "agent"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Place:
    """Where everybody is.

    Attributes:
        core: The broker whose mesh it is: it has a client of its own, which is not counted.
        subscribers: Brokers of those who are counted, of greater ids.
        publisher: The broker of who publishes.
        newcomer: A broker of smaller id, where somebody subscribes to make it the core.
    """

    name: str
    core: BrokerId
    subscribers: tuple[BrokerId, ...]
    publisher: BrokerId
    newcomer: BrokerId


def _place(
    name: str, *, core: int, subscribers: Iterable[int], publisher: int, newcomer: int
) -> Place:
    each = tuple(map(BrokerId, subscribers))
    return Place(name, BrokerId(core), each, BrokerId(publisher), BrokerId(newcomer))


PLACES: Final = (
    # All shortest ways between these lead through the middle, or along one side of it.
    _place("middle", core=4, subscribers=(5, 6, 7, 8), publisher=3, newcomer=1),
    # Both corners hang on the core by different neighbours: without it their meshes do not meet.
    _place("apart", core=4, subscribers=(6, 8), publisher=1, newcomer=2),
    # The core is not on the way between publisher and subscribers.
    _place("corner", core=1, subscribers=(6, 8), publisher=7, newcomer=0),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Which blows fall where, how often, and on how fast a traffic."""

    rounds: int = setting(20, "Blows of each kind at each place.", 1, 1_000)
    blows: tuple[str, ...] = setting(
        (),
        "What happens to the core; all of them when none is named.",
        option="--blow",
        among=[blow.value for blow in Blow],
    )
    places: tuple[str, ...] = setting(
        (),
        "Where the core is, and who publishes and subscribes; all of them when none is named.",
        option="--place",
        among=[place.name for place in PLACES],
    )
    rate_hz: float = setting(50.0, "msg/s at each QoS.", 1, 500, option="--rate")
    delay_ms: float = setting(1.0, "ms of each link.", 0, 100, option="--delay")
    redundancy: int = setting(2, "Parents per broker.", 1, 4)


@dataclass(frozen=True, slots=True)
class Round:
    """What one subscriber felt of one blow, at one quality of service."""

    place: Place
    blow: Blow
    subscriber: BrokerId
    qos: int
    gap_s: float
    arrivals: Arrivals

    @property
    def held(self) -> bool:
        whole = self.arrivals.exact if self.qos else not self.arrivals.duplicates
        return whole and self.gap_s <= GAP_S_MAX


@dataclass(frozen=True, slots=True)
class Outcome(Result):
    """What all subscribers felt of all blows."""

    rounds: list[Round]

    @property
    def held(self) -> bool:
        return all(each.held for each in self.rounds)

    def lines(self) -> Iterator[str]:
        def kind(each: Round) -> tuple[str, str, int]:
            return each.place.name, each.blow, each.qos

        for (place, blow, qos), some in groupby(sorted(self.rounds, key=kind), key=kind):
            felt = list(some)
            yield (
                f"{place}, {blow}, QoS {qos}: longest silence"
                f" {max(each.gap_s for each in felt):.3f} s,"
                f" {sum(each.arrivals.lost for each in felt)} lost of"
                f" {sum(each.arrivals.sent for each in felt)},"
                f" {sum(each.arrivals.duplicates for each in felt)} twice,"
                f" {sum(each.arrivals.disordered for each in felt)} out of order"
            )


class _Meshes:
    """The clients of one round, at a topic of their own for each quality of service."""

    def __init__(self, grid: RunningGrid, place: Place, number: int, publications: int) -> None:
        self.place = place
        self.topics = {qos: f"round/{number}/qos/{qos}" for qos in QOS}
        self._grid = grid
        self._number = number
        self.publisher = Client(grid.endpoint(place.publisher), f"publisher-{number}")
        self.at_core = self._subscribers(place.core)
        self.counted: dict[tuple[BrokerId, int], Client] = {}
        for id in place.subscribers:
            for qos, client in self._subscribers(id).items():
                client.tally = Tally(number, publications, payload_bytes=PAYLOAD_BYTES)
                client.at_s = []
                self.counted[id, qos] = client

    @property
    def clients(self) -> list[Client]:
        return [*self.at_core.values(), *self.counted.values(), self.publisher]

    def newcomers(self) -> list[Client]:
        return list(self._subscribers(self.place.newcomer).values())

    def _subscribers(self, id: BrokerId) -> dict[int, Client]:
        name = f"at-{id}-of-{self._number}"
        topics = self.topics.items()
        at = self._grid.endpoint(id)
        return {qos: Client(at, f"{name}-{qos}", topic) for qos, topic in topics}

    async def publish(self, rate_hz: float, publications: int) -> None:
        async for number in paced(publications, rate_hz):
            for qos, topic in self.topics.items():
                now_ns = time.monotonic_ns()
                payload = stamped(self._number, number, now_ns, payload_bytes=PAYLOAD_BYTES)
                assert self.publisher.link.publish(topic, payload, qos=qos), "its broker lives"

    def fault(self, pages: Pages) -> str | None:
        for here, page in pages.items():
            for filter in self.topics.values():
                mine = [mesh for mesh in page["meshes"] if mesh["filter"] == filter]
                if [mesh["core"] for mesh in mine] != [self.place.core]:
                    return f"broker {here} has no mesh of {filter} around {self.place.core}"
                if mine[0]["handing_over_from"] is not None:
                    return f"broker {here} hands {filter} over"
        return None


async def run(settings: Settings, folder: Path, tell: Tell) -> Outcome:
    """Run a 3 x 3 grid, and kill the core's broker or agent, or move the core, under traffic.

    Exits 0 when no subscriber heard nothing for more than 0.1 s, nothing came twice, and at QoS 1
    nothing was lost or out of order; 1 otherwise. A round takes about ten seconds.
    """
    places = [each for each in PLACES if each.name in (settings.places or (each.name,))]
    blows = [each for each in Blow if each in (settings.blows or (each,))]
    grid = RunningGrid(
        GRID,
        folder,
        link_delay_ms=settings.delay_ms,
        redundancy=settings.redundancy,
        broker_options=DEEP,
    )
    found: list[Round] = []
    async with grid:
        tell(f"{len(GRID.ids)} brokers and agents stand")
        every = product(range(settings.rounds), places, blows)
        for number, (turn, place, blow) in enumerate(every, 1):
            felt = await _round(grid, place, blow, number, settings.rate_hz)
            worst = max(each.gap_s for each in felt)
            tell(f"round {turn + 1}, {place.name}, {blow}: longest silence {worst:.3f} s")
            found += felt
    return Outcome(found)


async def _round(
    grid: RunningGrid, place: Place, blow: Blow, number: int, rate_hz: float
) -> list[Round]:
    publications = round(rate_hz * (STEADY_S + LOOKED_S))
    meshes = _Meshes(grid, place, number, publications)
    async with linked(*meshes.clients):
        await grid.until(meshes.fault)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(meshes.publish(rate_hz, publications), name="publisher")
            await asyncio.sleep(STEADY_S)
            struck_s = time.monotonic()
            await _strike(grid, meshes, blow)
        ended_s = struck_s + LOOKED_S - LOOKED_BEFORE_S
        await asyncio.sleep(LINGER_S)
        felt = [
            Round(
                place, blow, id, qos,
                client.longest_gap_s(struck_s - LOOKED_BEFORE_S, ended_s),
                client.tally.arrivals(publications),
            )
            for (id, qos), client in meshes.counted.items()
            if client.tally is not None
        ]  # fmt: skip
    await _recover(grid, place.core, blow)
    return felt


async def _strike(grid: RunningGrid, meshes: _Meshes, blow: Blow) -> None:
    core = meshes.place.core
    # In a thread, as the clients are in this one: to wait for a process's end would silence them.
    match blow:
        case Blow.BROKER:
            await asyncio.to_thread(grid.brokers[core].kill9)
        case Blow.AGENT:
            await asyncio.to_thread(grid.agents[core].kill9)
        case Blow.MOVE:
            async with running(*(each.link.run() for each in meshes.newcomers())):
                await asyncio.sleep(LOOKED_S)


async def _recover(grid: RunningGrid, core: BrokerId, blow: Blow) -> None:
    if blow is Blow.BROKER:
        await grid.brokers[core].restart()
    elif blow is Blow.AGENT:
        await grid.agents[core].restart()
    await grid.until(grid.links_up)
    await grid.until(widened)


command = experiment("core-death", Settings, run)

"""Flows between clients at two brokers, each at a steady rate, and what became of them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import Inbound, MqttLink
from lab.grid.clients import Client, Tally, run_of, stamped
from lab.grid.stage import Stage
from lab.grid.streams import linked

PAYLOAD_BYTES: Final = 2_000
DRAIN_S: Final = 3.0
"""After a spell: what has not come then is lost, or waits in a queue, which is as bad."""

Share = Callable[["Demand"], float]
"""At which share of its rate a demand is published at this moment."""

PUBLICATIONS_MAX: Final = 1_000_000
"""Of one flow in one spell."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Clients of ``origin`` publish so that ``destination`` gets ``rate`` bit/s of payload."""

    origin: BrokerId
    destination: BrokerId
    rate: float

    @property
    def topic(self) -> str:
        return f"steered/{self.origin}/{self.destination}/{round(self.rate)}"

    def __str__(self) -> str:
        return self.topic


@dataclass(frozen=True, slots=True)
class Arrived:
    """What came of one flow in one spell."""

    sent: int
    came: int
    again: int
    delays_ms: tuple[float, ...]  # ascending

    @property
    def lost(self) -> int:
        return self.sent - self.came

    def quantile_ms(self, share: float) -> float:
        """A delay that so many stayed below; of what never came there is none."""
        if not self.delays_ms:
            return float("inf")
        return self.delays_ms[min(len(self.delays_ms) - 1, int(share * len(self.delays_ms)))]


class _Flow(Client):
    """The subscriber of a demand, with its publisher."""

    def __init__(self, grid: Stage, demand: Demand) -> None:
        at, to = grid.endpoint(demand.origin), grid.endpoint(demand.destination)
        super().__init__(to, f"to-{demand.topic}", demand.topic, qos=0)
        self.demand = demand
        self.publisher = Client(at, f"from-{demand.topic}")
        self._spells: dict[int, Tally] = {}

    async def publish(self, spell: int, share: Share, end_s: float) -> int:
        """Publish at ``share`` of the rate until then; how many."""
        self._spells[spell] = Tally(spell, PUBLICATIONS_MAX, payload_bytes=PAYLOAD_BYTES)
        number, due_s = 0, time.monotonic()
        while time.monotonic() < end_s:
            now_ns = time.monotonic_ns()
            payload = stamped(spell, number, now_ns, payload_bytes=PAYLOAD_BYTES)
            number += self.publisher.link.publish(self.demand.topic, payload)
            due_s += PAYLOAD_BYTES * 8 / (self.demand.rate * share(self.demand))
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        return number

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        now_ns = time.monotonic_ns()
        for packet, _, _ in publishes:
            if tally := self._spells.get(run_of(packet.payload)):
                tally.arrived(packet.payload, now_ns)

    def arrived(self, spell: int, sent: int) -> Arrived:
        tally = self._spells.pop(spell)
        delays = tuple(sorted(tally.delays_ms))
        return Arrived(sent, tally.received, tally.duplicates, delays)


class Flows:
    """All flows; made by ``flowing``."""

    def __init__(self, flows: Sequence[_Flow]) -> None:
        self._flows = flows
        self._spell = 0

    async def spell(
        self, seconds: float, share: Share = lambda demand: 1.0
    ) -> dict[Demand, Arrived]:
        """Publish for so long at ``share`` of the rates, wait for the rest, and count."""
        self._spell += 1
        spell = self._spell  # another may begin before what is under way of this one has come
        end_s = time.monotonic() + seconds
        sent = await asyncio.gather(*(flow.publish(spell, share, end_s) for flow in self._flows))
        await asyncio.sleep(DRAIN_S)
        counted = zip(self._flows, sent, strict=True)
        return {flow.demand: flow.arrived(spell, count) for flow, count in counted}


@contextlib.asynccontextmanager
async def flowing(grid: Stage, demands: Sequence[Demand]) -> AsyncIterator[Flows]:
    flows = [_Flow(grid, demand) for demand in demands]
    clients = [client for flow in flows for client in (flow, flow.publisher)]
    async with linked(*clients):
        yield Flows(flows)

"""Flows between clients at two brokers, each at a steady rate, and what became of them."""

import asyncio
import contextlib
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiomqtt

from federator.protocol.types import BrokerId

PAYLOAD_BYTES: Final = 2_000
DRAIN_S: Final = 3.0
"""After a spell: what has not come then is lost, or waits in a queue, which is as bad."""

NO_DELAY: Final = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
Place = tuple[str, int]
Share = Callable[["Demand"], float]
"""At which share of its rate a demand is published at this moment."""

_STAMP = struct.Struct(">QQQ")  # spell, number, nanoseconds


@dataclass(frozen=True, slots=True)
class Demand:
    """Clients of ``origin`` publish so that ``destination`` gets ``rate`` bit/s of payload."""

    origin: BrokerId
    destination: BrokerId
    rate: float

    @property
    def topic(self) -> str:
        """What they publish on."""
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
        """Publications that never came."""
        return self.sent - self.came

    def quantile_ms(self, share: float) -> float:
        """A delay that so many stayed below; of what never came there is none."""
        if not self.delays_ms:
            return float("inf")
        return self.delays_ms[min(len(self.delays_ms) - 1, int(share * len(self.delays_ms)))]


@dataclass(eq=False)
class _Flow:
    demand: Demand
    publisher: aiomqtt.Client
    came: Counter[tuple[int, int]] = field(default_factory=Counter)
    delays_ns: dict[tuple[int, int], int] = field(default_factory=dict)

    async def publish(self, spell: int, share: Share, end_s: float) -> int:
        """Publish at ``share`` of the rate until then; how many."""
        number, due_s = 0, time.monotonic()
        while time.monotonic() < end_s:
            stamp = _STAMP.pack(spell, number, time.monotonic_ns())
            await self.publisher.publish(self.demand.topic, stamp.ljust(PAYLOAD_BYTES, b"."), qos=0)
            number += 1
            due_s += PAYLOAD_BYTES * 8 / (self.demand.rate * share(self.demand))
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        return number

    async def read(self, subscriber: aiomqtt.Client) -> None:
        async for message in subscriber.messages:
            payload = message.payload
            assert isinstance(payload, bytes)
            spell, number, sent_ns = _STAMP.unpack_from(payload)
            self.came[spell, number] += 1
            self.delays_ns.setdefault((spell, number), time.monotonic_ns() - sent_ns)

    def arrived(self, spell: int, sent: int) -> Arrived:
        of_spell = [key for key in self.came if key[0] == spell]
        delays = sorted(self.delays_ns.pop(key) / 1e6 for key in of_spell)
        again = sum(self.came.pop(key) - 1 for key in of_spell)
        return Arrived(sent, len(of_spell), again, tuple(delays))


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
async def flowing(
    places: Mapping[BrokerId, Place], demands: Sequence[Demand]
) -> AsyncIterator[Flows]:
    """Connect all clients, for as long as the context lasts."""
    async with contextlib.AsyncExitStack() as stack:
        flows, reading = [], []
        for demand in demands:
            at, to = places[demand.origin], places[demand.destination]
            publisher = aiomqtt.Client(
                *at, identifier=f"from-{demand.topic}", socket_options=[NO_DELAY]
            )
            subscriber = aiomqtt.Client(*to, identifier=f"to-{demand.topic}")
            flow = _Flow(demand, await stack.enter_async_context(publisher))
            await stack.enter_async_context(subscriber)
            await subscriber.subscribe(demand.topic)
            reading.append(asyncio.create_task(flow.read(subscriber), name=demand.topic))
            flows.append(flow)
        try:
            yield Flows(flows)
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

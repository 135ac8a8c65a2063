"""Finds the hubs of a leaf: how far each is, how many leaves it serves, which are gone.

Each hub that accepts the leaf has a page about that on its broker (``Health`` of the leaf's port),
so one look is a connection, a subscription and that retained page.

Source: docs/hubs.md, "Hubs that a leaf finds"; ``protocol.leaves.nearest_hubs``.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from federator.config.brokers import NeighbourSettings
from federator.config.settings import Settings
from federator.config.topology import TopologySettings
from federator.errors import DecodeError, LinkError
from federator.protocol.leaves.nearest_hubs import NearestHubs, SeenHub, kept_of
from federator.protocol.messages.guide import Health
from federator.protocol.messages.json_codec import decode
from federator.protocol.messages.topics import health_topic
from federator.protocol.types import BrokerId
from federator.runtime.leaves.role import BrokerAgent
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.mqtt.probe import BrokerProbe
from federator.runtime.process.clocks import monotonic_ms
from federator.runtime.process.reloading import Reloader, Source
from federator.runtime.storage import damage

FILE: Final = "hubs"
CHECK_S: Final = 2.0
LOOK_SECONDS_MAX: Final = 3.0
TRIES: Final = 3
"""Subscriptions timed; the quickest counts: a busy machine answers late, never early."""

_log = structlog.get_logger()


class HubFinder:
    """The finder of a leaf that names more hubs than it uses.

    Args:
        settings: As read, with all hubs.
        folder: The state folder.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._read_last = self._offered = settings  # as last read, and as last applied
        self._path = folder / FILE
        self._seen: dict[BrokerId, SeenHub] = {}
        taken = self._read()
        self._is_new = not taken
        self._near = NearestHubs(
            _ids(settings),
            settings.broker_id,
            taken=taken,
            patience_ms=settings.topology.patience_ms,
            keep_ms=settings.custody.keep_s * 1_000,
            exchange_ms=round(settings.topology.exchange_ms * random.uniform(0.8, 1.2)),
            now_ms=monotonic_ms(),
        )

    async def start(self) -> None:
        """Choose two hubs, unless an earlier process did."""
        if self._is_new:
            await self._look()
            self._near.start(self._seen.values(), monotonic_ms())
            self._record_choice(keep=bool(self._seen))

    def narrowed(self, settings: Settings) -> Settings:
        """``settings`` with only the hubs that the leaf has chosen."""
        return _naming(self._offered, self._near.taken, settings)

    def source(self, source: Source[Settings]) -> Source[Settings]:
        """``source``, narrowed, to be read in any thread; ``follow`` when it is applied."""

        def read() -> Settings:
            self._read_last = latest = read_all()
            return _naming(latest, kept_of(self._near.taken, _ids(latest)), latest)

        read_all = source.read
        return replace(source, read=read)

    def follow(self, settings: Settings) -> None:
        """The settings read last are applied: as ``settings``, narrowed."""
        self._offered = self._read_last
        self._near.know(_ids(self._offered), _ids(settings), monotonic_ms())

    async def run(
        self,
        agent: BrokerAgent,
        reloader: Reloader[Settings],
        prepare: Callable[[Settings], Mapping[str, Endpoint]],
    ) -> None:
        """Have ``agent`` use other hubs when there is a reason to."""
        while True:
            await asyncio.sleep(CHECK_S)
            if not self._near.is_due(_linked(agent), monotonic_ms()):
                continue
            await self._look()
            served_by = agent.served_by()
            taken, seen = self._near.taken, self._seen.values()
            if not self._near.on_seen(seen, _linked(agent), served_by, monotonic_ms()):
                continue
            before, settings = agent.settings, self.narrowed(agent.settings)
            try:
                endpoints = await asyncio.to_thread(prepare, settings)
            except (OSError, ValueError) as error:
                _log.warning("leaf.hub_refused", reason=str(error))
                endpoints = None
            if agent.settings is not before:
                continue  # a reload came between, and decides
            if endpoints is None:
                self._near.know(self._near.known, taken, monotonic_ms())
                continue
            agent.follow(settings, endpoints, returns=False)
            reloader.settings = settings
            self._record_choice()

    def snapshot(self) -> list[dict[str, Any]]:
        """All candidate hubs, as last seen."""
        return [
            {
                "id": hub,
                "taken": hub in self._near.taken,
                "round_trip_ms": None if seen is None else round(seen.round_trip_ms, 1),
                "leaves": None if seen is None else seen.leaves,
            }
            for hub in self._near.known
            for seen in [self._seen.get(hub)]
        ]

    # Inside

    async def _look(self) -> None:
        """Look at all hubs at once."""
        settings = self._offered
        named = [settings.neighbour_connection(hub) for hub in settings.neighbours]
        seen = await asyncio.gather(*(look(settings, hub) for hub in named))
        self._seen = {hub.id: hub for hub in seen if hub is not None}

    def _record_choice(self, *, keep: bool = True) -> None:
        """Log the chosen hubs. Without ``keep``, do not store them: the next start chooses anew."""
        taken = self._near.taken
        _log.info("leaf.hubs_taken", hubs=list(taken))
        if not keep:
            return
        try:
            damage.write(self._path, msgspec.json.encode(taken))
        except OSError as error:
            _log.warning("leaf.note_failed", reason=error.strerror or str(error))

    def _read(self) -> tuple[BrokerId, ...]:
        hubs = damage.read(self._path, msgspec.json.Decoder(tuple[BrokerId, ...]).decode)
        return tuple(dict.fromkeys(hubs or ()))


async def look(settings: Settings, hub: NeighbourSettings) -> SeenHub | None:
    """The distance of ``hub`` and its page; ``None`` if it does not accept us, or not now."""
    topic = health_topic(settings.federation)
    name = f"federator-{settings.broker.id}-looks"
    try:
        async with (
            asyncio.timeout(LOOK_SECONDS_MAX),
            BrokerProbe(hub, client_id=name) as probe,
        ):
            took_s = []
            for _ in range(TRIES):
                started_s = time.perf_counter()
                await probe.subscribe(topic)
                took_s.append(time.perf_counter() - started_s)
            health = decode(Health, (await probe.next_message()).payload)
    except (LinkError, DecodeError, OSError, ValueError, TimeoutError):
        return None
    if health.broker != hub.id or health.state == "down":
        return None
    return SeenHub(BrokerId(health.broker), 1_000 * min(took_s), health.leaves)


def _naming(offered: Settings, hubs: Iterable[BrokerId], settings: Settings) -> Settings:
    """``settings`` with ``hubs``, as ``offered`` names them, and with nothing left to choose."""
    named = {hub_settings.id: hub_settings for hub_settings in offered.neighbours}
    taken = tuple(named[hub] for hub in hubs)
    return replace(settings, neighbours=taken, topology=TopologySettings())


def _ids(settings: Settings) -> list[BrokerId]:
    return [BrokerId(neighbour.id) for neighbour in settings.neighbours if neighbour.id is not None]


def _linked(agent: BrokerAgent) -> frozenset[BrokerId]:
    return frozenset(agent.node.links.up)

"""Services for ``protocol.topology``: measurements, known brokers on disk, checks of addresses.

Source: docs/topology.md; docs/protocol.md 16.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import structlog

from federator.config.brokers import Address
from federator.config.settings import Settings
from federator.errors import DecodeError
from federator.protocol.effects import Measure
from federator.protocol.events import Measured
from federator.protocol.messages.places import Place
from federator.protocol.types import BrokerId, Epoch
from federator.runtime.mqtt.parts import Part
from federator.runtime.storage import damage
from federator.runtime.trust.guarding import Trust

BROKERS_FILE: Final = "brokers.json"
TRIES: Final = 3
"""Connections tried to measure; the quickest counts: a busy machine answers late, never early."""

TRY_SECONDS_MAX: Final = 3.0

_log = structlog.get_logger()
_brokers: Final = msgspec.json.Decoder(tuple[tuple[BrokerId, str], ...])


@dataclass(eq=False, repr=False)
class ConfiguredAddressVerifier:
    """Signs our address with our key, and verifies others' by their keys and our rules."""

    settings: Settings
    trust: Trust | None

    def sign(self, address: str, epoch: Epoch) -> bytes:
        """Our signature, if we have a key."""
        return b"" if self.trust is None else self.trust.guard.prove_address(address, epoch)

    def objection(self, id: BrokerId, place: Place) -> str:
        """Why no agent may connect there; empty when all is well."""
        try:
            if self.trust is not None:
                guard = self.trust.guard
                guard.check_address(id, place.epoch, place.address, place.proof)
            if self.settings.dialled_back(place.address).address == self.settings.broker.address:
                return f"{place.address} is our own broker: set broker.advertise there"
        except (DecodeError, ValueError) as error:
            return str(error)[:200]
        return ""


def known_brokers(folder: Path) -> tuple[tuple[BrokerId, str], ...]:
    """The brokers known to an earlier process; none when the file cannot be read."""
    return damage.read(folder / BROKERS_FILE, _brokers.decode) or ()


@dataclass(eq=False, repr=False)
class Arranger:
    """Measures round trips, and remembers brokers over a restart."""

    folder: Path
    measured: Callable[[Measured], None]

    def __post_init__(self) -> None:
        # The protocol requests one measurement at a time.
        self._requests: asyncio.Queue[Measure] = asyncio.Queue()
        self.measure = self._requests.put_nowait

    def part(self) -> Part:
        return Part(tasks={"topology": self.run})

    async def run(self) -> None:
        """Measure what is requested, one after another."""
        while True:
            order = await self._requests.get()
            self.measured(Measured(order.id, await round_trip(order.address)))

    def remember(self, brokers: tuple[tuple[BrokerId, str], ...]) -> None:
        """Write down known brokers, for ``known_brokers``."""
        path = self.folder / BROKERS_FILE
        try:
            damage.write(path, msgspec.json.encode(brokers))
        except OSError as error:
            _log.warning("topology.not_saved", file=str(path), reason=str(error))


async def round_trip(url: str) -> int | None:
    """Round trip in milliseconds, from how long TCP takes to connect; ``None``: no answer.

    Nothing is sent over the connection, so the other end learns only that it was tried.
    """
    took_s: list[float] = []
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError, ValueError, TimeoutError):
        address = Address.parse(url)
        async with asyncio.timeout(TRY_SECONDS_MAX):
            # The name is resolved first: that is not part of the way.
            host = str((await loop.getaddrinfo(address.host, address.port))[0][4][0])
        for _ in range(TRIES):
            started_s = loop.time()
            async with asyncio.timeout(TRY_SECONDS_MAX):
                _, writer = await asyncio.open_connection(host, address.port)
            took_s.append(loop.time() - started_s)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    return max(1, round(1_000 * min(took_s))) if took_s else None

"""What ``protocol.topology`` asks for: measurements, known brokers on disk, who may be dialled.

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
    """Vouches for our address with our key, and judges others' by theirs and by our rules."""

    settings: Settings
    trust: Trust | None

    def sign(self, address: str, epoch: Epoch) -> bytes:
        """Our signature, if we sign."""
        return b"" if self.trust is None else self.trust.guard.prove_address(address, epoch)

    def objection(self, id: BrokerId, place: Place) -> str:
        """Why nobody may connect there; empty when all is well."""
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
    """The brokers that we knew when we ran before; none when that cannot be read."""
    return damage.read(folder / BROKERS_FILE, _brokers.decode) or ()


@dataclass(eq=False, repr=False)
class Arranger:
    """Measures ways, and remembers brokers over a restart."""

    folder: Path
    measured: Callable[[Measured], None]

    def __post_init__(self) -> None:
        self._asked: asyncio.Queue[Measure] = asyncio.Queue()  # the protocol asks one at a time
        self.measure = self._asked.put_nowait

    async def run(self) -> None:
        """Measure what is asked, one after another."""
        while True:
            order = await self._asked.get()
            self.measured(Measured(order.id, await round_trip(order.address)))

    def remember(self, brokers: tuple[tuple[BrokerId, str], ...]) -> None:
        """Write down whom we know, for ``known_brokers``."""
        path = self.folder / BROKERS_FILE
        try:
            damage.write(path, msgspec.json.encode(brokers))
        except OSError as error:
            _log.warning("topology.not_saved", file=str(path), reason=str(error))


async def round_trip(url: str) -> int | None:
    """Milliseconds there and back, from how long TCP takes to connect; ``None``: no answer.

    Nothing is said over the connection, so whoever answers learns no more than that somebody asked.
    """
    took_s: list[float] = []
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError, ValueError, TimeoutError):
        address = Address.parse(url)
        async with asyncio.timeout(TRY_SECONDS_MAX):
            # The name is looked up first: that is not part of the way.
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

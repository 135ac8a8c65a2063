"""All relays of a grid in one child process, away from whatever else keeps an interpreter busy.

The child takes one command per line on stdin, answers each with one line on stdout, and ends when
its stdin does: ``{"do": "add", "name": "6>7", "host": ..., "port": ..., "delay_ms": 5}`` gives
``{"port": ...}``. ``RelayProcess`` is the parent's side of it.
"""

import asyncio
from pathlib import Path
from typing import Any

from federator.errors import LinkError
from lab.grid.processes.children import Helper, answer, orders, python
from lab.grid.processes.precise_loop import go_first, precise_loop, sharpen_timers
from lab.grid.processes.relay import Relay, Way


class RelayProcess(Helper):
    """Delay relays in a child process, by name. Every command waits until it took effect."""

    def __init__(self, folder: Path) -> None:
        super().__init__(python("lab.grid.processes.relay_process"), log=folder / "relays.log")
        self._turn = asyncio.Lock()

    async def add(self, name: str, *, host: str, port: int, delay_ms: float) -> int:
        """A new relay to ``host:port``; returns the loopback port it listens on."""
        found = await self._do("add", name=name, host=host, port=port, delay_ms=delay_ms)
        return int(found["port"])

    async def cut(self, name: str) -> None:
        """Reset its connections and refuse new ones until healed."""
        await self._do("cut", name=name)

    async def reset(self, name: str) -> None:
        """Reset its connections, once."""
        await self._do("reset", name=name)

    async def silence(self, name: str, *ways: Way) -> None:
        """Keep its connections and carry nothing in ``ways`` (none given: both) until healed."""
        await self._do("silence", name=name, ways=[way.value for way in ways or tuple(Way)])

    async def swallow(self, name: str, *ways: Way) -> None:
        """Make its connections half-open in ``ways`` (none given: both); new ones work."""
        await self._do("swallow", name=name, ways=[way.value for way in ways or tuple(Way)])

    async def heal(self, name: str) -> None:
        """Carry traffic again."""
        await self._do("heal", name=name)

    async def set_delay_ms(self, name: str, delay_ms: float) -> None:
        """Change the delay for what arrives from now on; order is kept."""
        await self._do("delay", name=name, delay_ms=delay_ms)

    async def narrow(self, name: str, bytes_per_s: float | None) -> None:
        """Carry so much a second each way from now on; ``None``: all that comes."""
        await self._do("narrow", name=name, bytes_per_s=bytes_per_s)

    async def counters(self, name: str) -> dict[str, int]:
        """The counters of one relay: ``connections``, ``open``, ``chunks``, ``bytes``, and what
        faults did: connections ``broken``, bytes ``swallowed``, directions ``stuck``.
        """
        return await self._do("counters", name=name)

    async def _do(self, command: str, **arguments: object) -> dict[str, Any]:
        async with self._turn:
            await self.tell({"do": command, **arguments})
            found = await self.hear()
        if "error" in found:
            raise LinkError(f"relay {arguments.get('name')}: {found['error']}")
        return found


def _perform(relays: dict[str, Relay], order: dict[str, Any]) -> dict[str, Any]:
    name = order["name"]
    if order["do"] == "add":
        if name in relays:
            return {"error": "exists already"}
        relay = Relay((order["host"], order["port"]), delay_s=order["delay_ms"] / 1000)
        relays[name] = relay
        return {"port": relay.listen()}
    if name not in relays:
        return {"error": "unknown"}
    relay = relays[name]
    match order["do"]:
        case "cut":
            relay.cut()
        case "reset":
            relay.reset()
        case "silence":
            relay.silence(frozenset(Way(way) for way in order["ways"]))
        case "swallow":
            relay.swallow(frozenset(Way(way) for way in order["ways"]))
        case "heal":
            relay.heal()
        case "delay":
            relay.delay_s = order["delay_ms"] / 1000
        case "narrow":
            relay.narrow(order["bytes_per_s"])
        case "counters":
            return {
                "connections": relay.connections,
                "open": len(relay.open),
                "chunks": relay.chunks,
                "bytes": relay.bytes_relayed,
                "broken": relay.broken,
                "swallowed": relay.bytes_swallowed,
                "stuck": relay.stuck,
            }
        case unknown:
            return {"error": f"unknown command {unknown}"}
    return {}


async def _serve() -> None:
    relays: dict[str, Relay] = {}
    async for order in orders():
        answer(_perform(relays, order))
    for relay in relays.values():
        relay.close()


def main() -> None:
    """Serve until stdin ends."""
    sharpen_timers()
    go_first()
    with asyncio.Runner(loop_factory=precise_loop) as runner:
        runner.run(_serve())


if __name__ == "__main__":
    main()

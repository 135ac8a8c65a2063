"""All relays of a grid in one child process, away from whatever else keeps an interpreter busy.

The child takes one command per line on stdin, answers each with one line on stdout, and ends when
its stdin does: ``{"do": "add", "name": "6>7", "host": ..., "port": ..., "delay_ms": 5}`` gives
``{"port": ...}``. ``RelayProcess`` is the parent's side of it.
"""

import asyncio
from pathlib import Path
from typing import Any

from lab.grid.processes.children import Helper, answer, orders, python
from lab.grid.processes.precise_loop import go_first, precise_loop, sharpen_timers
from lab.grid.processes.relay import Relay


class RelayProcess(Helper):
    """Delay relays in a child process, by name; started when the first command needs it.

    Every command waits until it took effect.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(python("lab.grid.processes.relay_process"), log=folder / "relays.log")
        self._turn = asyncio.Lock()

    async def add(self, name: str, place: tuple[str, int], *, delay_ms: float) -> int:
        """A new relay to ``place``; returns the loopback port it listens on."""
        found = await self.order("add", name, host=place[0], port=place[1], delay_ms=delay_ms)
        return int(found["port"])

    async def counters(self, name: str) -> dict[str, int]:
        """The counters of one relay: ``connections``, ``open``, ``chunks``, ``bytes``, those by way
        (``forth``, ``back``), and what faults did: connections ``broken``, bytes ``swallowed``,
        directions ``stuck``.
        """
        return await self.order("counters", name)

    async def order(self, act: str, name: str, **how: object) -> dict[str, Any]:
        """Have one do something: ``act`` is a method of ``Relay``, ``how`` its arguments."""
        async with self._turn:
            if self._process is None:
                await self.start()
            return await self.ask({"do": act, "name": name, **how})


def _perform(relays: dict[str, Relay], order: dict[str, Any]) -> dict[str, Any]:
    act, name = order.pop("do"), order.pop("name")
    if act == "add":
        if name in relays:
            return {"error": f"relay {name}: exists already"}
        relays[name] = Relay((order["host"], order["port"]), delay_s=order["delay_ms"] / 1000)
        return {"port": relays[name].listen()}
    if name not in relays:
        return {"error": f"relay {name}: unknown"}
    relay = relays[name]
    if act == "counters":
        return {
            "connections": relay.connections,
            "open": len(relay.open),
            "chunks": relay.chunks,
            "bytes": relay.bytes_relayed,
            **{way.value: count for way, count in relay.bytes_by_way.items()},
            "broken": relay.broken,
            "swallowed": relay.bytes_swallowed,
            "stuck": relay.stuck,
        }
    getattr(relay, act)(**order)
    return {}


async def _serve() -> None:
    relays: dict[str, Relay] = {}
    async for order in orders():
        answer(_perform(relays, order))
    for relay in relays.values():
        relay.close()


def main() -> None:
    sharpen_timers()
    go_first()
    with asyncio.Runner(loop_factory=precise_loop) as runner:
        runner.run(_serve())


if __name__ == "__main__":
    main()

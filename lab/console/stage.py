"""Nine real brokers with names, an agent beside each, some clients, and a console: to be looked at.

The agents are those of a 3 x 3 grid. Links have a capacity, so that the console knows how full they
are; the clients of a congested federation publish more than that.
"""

import asyncio
from pathlib import Path
from typing import Final

from federator.console.operators import hashed
from federator.protocol.types import BrokerId
from lab.grid.processes.daemons import ConsoleProcess
from lab.grid.stage import Stage
from lab.grid.topology import Grid

FEDERATION: Final = "works"
NAMES: Final = (*("gate", "press-1", "press-2", "paint", "hall", "store", "lab", "dock", "office"),)
OPERATOR, PASSWORD = "ada", "a long enough password"
"""Who may sign in at the console of a stage."""

CAPACITY: Final = 200_000
"""bit/s of each link, as its agents are told."""


class ConsoleStage(Stage):
    """``side`` times ``side`` brokers, agents, and a console that knows of one broker."""

    console: ConsoleProcess

    def __init__(self, folder: Path, *, side: int = 3, history: str = "") -> None:
        super().__init__(folder)
        self._near, self._history = Grid(side, side).neighbours, history

    async def start(self) -> None:
        for id in self._near:
            await self.broker(id)
        await asyncio.gather(*(self._agent(id) for id in self._near))
        operators = self.folder / "operators"
        operators.touch(mode=0o600)
        operators.write_text(f"{OPERATOR}:{hashed(PASSWORD)}\n")
        made = ConsoleProcess(
            self.folder / "console",
            next(iter(self.brokers.values())).url,
            keys=f'federation = "{FEDERATION}"\nhistory = "{self._history}"',
            sections=f'[operators]\nfile = "{operators}"\n',
        )
        self.console = await self.beside.enter_async_context(made)

    async def _agent(self, id: BrokerId) -> None:
        more = {
            "broker": {"name": NAMES[id % 9], "advertise": self.brokers[id].url},
            "metrics": {"enabled": True, "live": True},
        }
        near = {other: self.brokers[other].url for other in self._near[id]}
        await self.agent(id, near, federation=FEDERATION, capacity=CAPACITY, more=more)

    async def publish(
        self, at: BrokerId, client_id: str, topic: str, *, per_s: float, size: int = 200
    ) -> None:
        link = (await self.client(at, client_id)).link

        async def go_on() -> None:
            while True:
                link.publish(topic, bytes(size))
                await asyncio.sleep(1 / per_s)

        await self.run(go_on())

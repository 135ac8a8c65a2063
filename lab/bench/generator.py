"""The load generator as a child process: takes orders from the bench, runs load, reports counts.

One process per system under test, so that nothing but load shares its interpreter. Its orders come
one per line on stdin: ``connect`` once, then runs; it ends with its stdin.
"""

import gc
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from federator.errors import LinkError
from lab.bench.layout import Layout, topics
from lab.bench.load import Outcome, pace, saturate
from lab.bench.wire import Wire
from lab.grid.processes.children import Helper, answer, python
from lab.grid.processes.precise_loop import sharpen_timers


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a system under test takes publications in, and where it hands them out."""

    publish_at: tuple[str, int]
    subscribe_at: tuple[str, int]


class Generator:
    """The bench's side of one load generator, with ``pairs`` of a publisher and a subscriber.

    Its ``name`` distinguishes client ids and logs.
    """

    def __init__(self, folder: Path, name: str, *, pairs: int = 1) -> None:
        self._name = name
        self._pairs = pairs
        self._helper = Helper(python("lab.bench.generator"), log=folder / f"load-{name}.log")
        self._run = 0

    async def start(self, ends: Ends, layout: Layout) -> None:
        """Start the process; returns when its clients are connected and subscribed.

        Raises:
            LinkError: It could not.
        """
        await self._helper.start()
        shape = {"topic": layout.topic, "qos": layout.qos, "payload_bytes": layout.payload_bytes}
        await self._ask({"name": self._name, "pairs": self._pairs, **asdict(ends), **shape})

    async def saturate(self, *, window: int, seconds: float, warm_up_s: float) -> Outcome:
        """Have the helper saturate; see ``load.saturate``."""
        order = {"window": window, "seconds": seconds, "warm_up_s": warm_up_s}
        return Outcome(**await self._ask({"saturate": {"run": self._next(), **order}}))

    async def pace(self, *, rate: float, seconds: float) -> Outcome:
        """Have the helper publish at a pace; see ``load.pace``."""
        order = {"rate": rate, "seconds": seconds}
        return Outcome(**await self._ask({"pace": {"run": self._next(), **order}}))

    async def stop(self) -> None:
        """End the process."""
        await self._helper.stop()

    def _next(self) -> int:
        self._run += 1
        return self._run

    async def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        await self._helper.tell(order)
        found = await self._helper.hear()
        if "error" in found:
            raise LinkError(f"{self._name}: {found['error']}")
        return found


def _serve() -> None:
    order = json.loads(sys.stdin.readline())
    wires = [
        Wire.connect(
            Layout(topic, order["qos"], order["payload_bytes"]),
            publish_at=tuple(order["publish_at"]),
            subscribe_at=tuple(order["subscribe_at"]),
            name=f"{order['name']}-{number}",
        )
        for number, topic in enumerate(topics(order["topic"], order["pairs"]))
    ]
    answer({})
    for line in sys.stdin:
        order = json.loads(line)
        gc.collect()
        gc.disable()  # a collection is a delay of ours, not of the system under test
        if "saturate" in order:
            outcome = saturate(wires, **order["saturate"])
        else:
            outcome = pace(wires, **order["pace"])
        gc.enable()
        answer(asdict(outcome))
    for wire in wires:
        wire.close()


def main() -> None:
    """Serve until stdin ends."""
    sharpen_timers()
    try:
        _serve()
    except LinkError as error:
        answer({"error": str(error)})


if __name__ == "__main__":
    main()

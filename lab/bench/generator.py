"""The load generator as a child process: takes orders from the bench, runs load, reports counts.

One process per system under test, so that nothing but load shares its interpreter. Its orders come
one per line on stdin: ``connect`` once, then runs; it ends with its stdin.
"""

import gc
import json
import sys
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

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


class Generator(Helper):
    """The bench's side of one load generator, with ``pairs`` of a publisher and a subscriber.

    Its ``name`` distinguishes client ids and logs.
    """

    def __init__(self, folder: Path, name: str, *, pairs: int) -> None:
        super().__init__(python("lab.bench.generator"), log=folder / f"load-{name}.log")
        self._name = name
        self._pairs = pairs
        self._runs = count(1)

    async def connect(self, ends: Ends, layout: Layout) -> None:
        """Start the process; returns when its clients are connected and subscribed."""
        await self.start()
        shape = {"topic": layout.topic, "qos": layout.qos, "payload_bytes": layout.payload_bytes}
        await self.ask({"name": self._name, "pairs": self._pairs, **asdict(ends), **shape})

    async def run(self, load: str, **how: float) -> Outcome:
        """Have it ``saturate`` or ``pace``: functions of ``load``, with these arguments."""
        return Outcome(**await self.ask({load: {"run": next(self._runs), **how}}))


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
        answer({"error": f"{' '.join(sys.argv)}: {error}"})


if __name__ == "__main__":
    main()

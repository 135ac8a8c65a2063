"""A program that hands a broker publications of any QoS at once and in order, as an agent does.

It is a process of its own, so that the subscribers in the laboratory's do not keep pace with it:
that lets a broker's queues for them fill. ``python -m lab.chaos.burst PORT`` reads JSON from its
input, a list of [topic, payload in hex, QoS], and ends when the broker has acknowledged everything.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from functools import partial

import structlog

from federator.errors import LinkError
from federator.runtime.mqtt.link import Endpoint
from lab.grid.clients import Client
from lab.grid.processes.children import mortal, python
from lab.grid.streams import linked

Publication = tuple[str, str, int]


async def hand_over(place: tuple[str, int], publications: Sequence[Publication]) -> None:
    """Have another process publish all of it. Raises ``LinkError``: it failed."""
    command = mortal(python("lab.chaos.burst", str(place[1])))
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
    try:
        await process.communicate(json.dumps(publications).encode())
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise LinkError(f"{' '.join(command)}: ended with {process.returncode}")


async def _publish(port: int, publications: Sequence[Publication]) -> None:
    client = Client(Endpoint("127.0.0.1", port), "burst")
    answers: asyncio.Queue[int] = asyncio.Queue()
    async with linked(client):
        publish = partial(client.link.publish, on_answer=answers.put_nowait)
        for topic, payload, qos in publications:
            if not publish(topic, bytes.fromhex(payload), qos=qos):
                raise LinkError("more than a link keeps")
        for _ in filter(None, (qos for _, _, qos in publications)):
            await answers.get()
        await client.link.close(keep_session=False)


if __name__ == "__main__":
    # What a link logs would be read as the laboratory's.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    asyncio.run(_publish(int(sys.argv[1]), json.load(sys.stdin)))

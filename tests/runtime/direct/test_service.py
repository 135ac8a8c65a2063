"""To whom an agent goes straight, as far as that is decided before a connection is made."""

import asyncio
import contextlib

import pytest

from federator.config.settings import Settings
from federator.config.validation import validated
from federator.protocol.messages.control import TOKEN_BYTES, DirectOffer
from federator.protocol.types import BrokerId, Epoch
from federator.runtime.direct.service import DirectLinks
from tests.protocol.trust.key_maker import KeyMaker
from tests.runtime.mqtt.test_hostile_peer import until

N2 = BrokerId(2)


class Keys:
    """What links want of the keys of an agent."""

    def __init__(self):
        self.guard = KeyMaker().guard(1)


@pytest.mark.parametrize(
    ("trust", "places", "dialled"),
    [(None, False, True), (Keys(), True, True), (Keys(), False, False)],
    ids=["open", "signed", "signed, and an older agent there"],
)
async def test_with_keys_only_agents_that_seal_for_places_are_dialled(trust, places, dialled):
    told = []
    async with asyncio.TaskGroup() as tasks:
        links = DirectLinks(
            settings=validated(
                Settings,
                {
                    "security": "open",
                    "broker": {"id": 1, "url": "mqtt://127.0.0.1:1"},
                    "links": {"transport": "direct"},
                    "direct": {"listen": "127.0.0.1:0"},
                },
            ),
            trust=trust,
            tasks=tasks,
            epoch=lambda: Epoch(1),
            tell=lambda neighbour, offer: told.append((neighbour, offer)),
            on_frames=lambda neighbour, frames: None,
            by_broker=None,  # nothing goes straight
        )
        run = tasks.create_task(links.run())
        await until(lambda: links.port._servers)
        links.on_neighbour(N2, True)
        links.on_offer(DirectOffer(N2, Epoch(1), "127.0.0.1:1", bytes(TOKEN_BYTES), places=places))

        assert (links.snapshot(N2)["address"] == "127.0.0.1:1") is dialled
        assert told[0][1].places is (trust is not None)
        links.on_neighbour(N2, False)
        await asyncio.sleep(0)
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run

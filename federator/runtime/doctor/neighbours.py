"""Can we speak at our neighbours' brokers, and they at ours? A link needs both.

At each neighbour's broker we do what our agent does there: log in, and publish. How others come to
us is tried by going the way that we tell them, our own address, and by listening to who is there
already. What another host sees may still differ: networks have more than one side.

Source: docs/protocol.md 3.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from federator.config.brokers import NeighbourSettings
from federator.config.settings import Settings
from federator.errors import LinkError
from federator.protocol.messages.codec import HELLO
from federator.protocol.messages.topics import DOCTORS_WORD, control_topic, data_topic
from federator.protocol.trust.guard import overheard_hello
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.probe import BrokerProbe, RefusedError, is_taken, plain
from federator.runtime.mqtt.secret_names import secret_name

TRIED_MAX: Final = 64
AT_ONCE: Final = 8
HEARD_MAX: Final = 64
"""Agents that are named; strangers can say hello, too."""


@dataclass(frozen=True, slots=True)
class WayThere:
    """What came of speaking at one address. ``failure`` is empty where it worked."""

    address: str
    failure: str = ""
    refused: bool = False  # somebody must let us in; else it may be away just now


@dataclass(frozen=True, slots=True)
class NeighbourFacts:
    """What came of each neighbour, and of the way that others take to us."""

    ways: Sequence[WayThere]
    to_us: WayThere
    heard: Mapping[BrokerId, str]  # whose agents speak here, and from where


async def try_neighbours(settings: Settings) -> NeighbourFacts:
    """Speak at each neighbour's broker, and at ours as others would; listen who speaks here.

    Raises:
        LinkError: Our own broker cannot be reached.
    """
    federation, told = settings.federation, settings.broker.advertised
    name = secret_name(f"{settings.broker.id}-doctor-at-home")
    gate = asyncio.Semaphore(AT_ONCE)

    async def speak(at: NeighbourSettings, *topics: str) -> WayThere:
        async with gate:
            return await _speak(settings, at, topics)

    heard: dict[BrokerId, str] = {}
    hello, ours = control_topic(federation, HELLO), data_topic(federation)
    async with BrokerProbe(settings.broker, client_id=name) as probe:
        await probe.subscribe(ours, hello)
        named = settings.neighbours[:TRIED_MAX]
        tries = [speak(settings.neighbour_connection(each), hello, ours) for each in named]
        tries.append(speak(NeighbourSettings(url=told).with_credentials_of(settings.broker), ours))
        *ways, to_us = await asyncio.gather(*tries)
        came_to_us = False
        try:
            async with asyncio.timeout(settings.links.hello_interval_ms * 2 / 1000):
                while True:
                    packet = await probe.next_message()
                    came_to_us = came_to_us or packet.payload == DOCTORS_WORD
                    if packet.topic != ours and len(heard) < HEARD_MAX:
                        said = overheard_hello(packet.payload)
                        heard |= {} if said is None else {said.sender: said.address}
        except TimeoutError:
            pass
    if not (to_us.failure or came_to_us):
        to_us = WayThere(told, "it leads to another broker than ours")
    return NeighbourFacts(ways, to_us, heard)


async def _speak(settings: Settings, at: NeighbourSettings, topics: Iterable[str]) -> WayThere:
    """Publish at ``at`` on ``topics``, as an agent would."""
    client_id = secret_name(f"{settings.broker.id}-doctor-abroad")
    try:
        async with BrokerProbe(at, client_id=client_id) as probe:
            for topic in topics:
                answer = plain(await probe.publish(topic, DOCTORS_WORD))
                if not is_taken(answer):
                    return WayThere(at.url, f"publishing on {topic}: {answer}", refused=True)
    except RefusedError as error:
        return WayThere(at.url, _without(at, error), refused=True)
    except LinkError as error:
        return WayThere(at.url, _without(at, error))
    return WayThere(at.url)


def _without(at: NeighbourSettings, error: LinkError) -> str:
    """The text of ``error`` without the address that stands beside it."""
    return str(error).removeprefix(f"{at.reached_at}: ")

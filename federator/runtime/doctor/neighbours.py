"""Tests whether we can publish at our neighbours' brokers, and they at ours: a link needs both.

At each neighbour's broker we do what our agent does there: log in, publish, and, if we only dial,
read our outbox. To test the way to us, we dial our own advertised address, and listen for agents
that are there already. Another host may still see something else: networks have more than one side.

Source: docs/protocol.md 3, 19.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from federator.config.brokers import NeighbourSettings
from federator.config.settings import Settings
from federator.errors import LinkError
from federator.protocol.links.outbox import place_of
from federator.protocol.links.standing import leads_nowhere
from federator.protocol.messages.codec import HELLO
from federator.protocol.messages.topics import (
    DOCTORS_WORD,
    OUTBOX_TRIED,
    control_topic,
    data_topic,
    outbox_topic,
)
from federator.protocol.trust.guard import overheard_hello
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.probe import BrokerProbe, RefusedError, is_taken, plain
from federator.runtime.mqtt.secret_names import secret_name

TRIED_MAX: Final = 64
AT_ONCE: Final = 8
HEARD_MAX: Final = 64
"""Agents that are named; strangers can send hellos, too."""


LONG_BYTES: Final = 65_536
"""A long payload: Mosquitto 2.0, when idle, takes 1.6 s to write it into a WebSocket."""

LONG_SECONDS_MAX: Final = 5.0


@dataclass(frozen=True, slots=True)
class WayThere:
    """The result of publishing at one address. ``failure`` is empty if it worked."""

    address: str
    failure: str = ""
    refused: bool = False  # an operator must let us in; else it may be away just now
    back: "WayBack | None" = None  # the result of reading there; ``None``: it publishes at ours
    ours: bool = False  # it is our own broker, under another name
    unreached: bool = False  # our advertised address is unreachable from there


@dataclass(frozen=True, slots=True)
class WayBack:
    """The result of reading our outbox at a neighbour's broker."""

    may_read: bool
    agent_publishes: bool  # its agent publishes for us there
    long_s: float | None = None  # how long ``LONG_BYTES`` took to come in WebSockets


@dataclass(frozen=True, slots=True)
class NeighbourFacts:
    """The result for each neighbour, and for the way to us."""

    ways: Sequence[WayThere]
    to_us: WayThere
    agents_here: Mapping[BrokerId, str]  # agents that publish here, and from where


async def try_neighbours(settings: Settings) -> NeighbourFacts:
    """Publish at each neighbour's broker, and at ours as others would; listen for agents here.

    Raises:
        LinkError: Our own broker cannot be reached.
    """
    federation, advertised = settings.federation, settings.broker.advertised
    name = secret_name(f"{settings.broker.id}-doctor-at-home")
    gate = asyncio.Semaphore(AT_ONCE)

    async def speak(at: NeighbourSettings, *topics: str, home: object = None) -> WayThere:
        async with gate:
            return await _speak(settings, at, topics, home)

    agents: dict[BrokerId, str] = {}
    hello, ours = control_topic(federation, HELLO), data_topic(federation)
    async with BrokerProbe(settings.broker, client_id=name) as probe:
        await probe.subscribe(ours, hello)
        named = settings.neighbours[:TRIED_MAX]
        tries = [
            speak(settings.neighbour_connection(neighbour), hello, ours, home=probe.place)
            for neighbour in named
        ]
        tries.append(
            speak(NeighbourSettings(url=advertised).with_credentials_of(settings.broker), ours)
        )
        *ways, to_us = await asyncio.gather(*tries)
        came_to_us = False
        try:
            async with asyncio.timeout(settings.links.hello_interval_ms * 2 / 1000):
                while True:
                    packet = await probe.next_message()
                    came_to_us = came_to_us or packet.payload == DOCTORS_WORD
                    if packet.topic != ours and len(agents) < HEARD_MAX:
                        greeting = overheard_hello(packet.payload)
                        agents |= (
                            {}
                            if greeting is None
                            else {greeting.sender: place_of(greeting.address)}
                        )
        except TimeoutError:
            pass
    if not (to_us.failure or came_to_us):
        to_us = WayThere(advertised, "it leads to another broker than ours")
    return NeighbourFacts(ways, to_us, agents)


async def _speak(
    settings: Settings, at: NeighbourSettings, topics: Iterable[str], home: object
) -> WayThere:
    """Publish at ``at`` on ``topics``, as an agent would; ``home`` is our own broker's address."""
    client_id = secret_name(f"{settings.broker.id}-doctor-abroad")
    try:
        async with BrokerProbe(at, client_id=client_id) as probe:
            for topic in topics:
                answer = plain(await probe.publish(topic, DOCTORS_WORD))
                if not is_taken(answer):
                    return WayThere(at.url, f"publishing on {topic}: {answer}", refused=True)
            if settings.takes_outbox(at):
                in_websockets = at.address.path is not None
                return WayThere(
                    at.url, back=await _read_outbox(settings, probe, long=in_websockets)
                )
            if probe.place == home:
                return WayThere(at.url, ours=True)
            unreached = leads_nowhere(settings.broker.advertised, probe.peer)
    except RefusedError as error:
        return WayThere(at.url, _without(at, error), refused=True)
    except LinkError as error:
        return WayThere(at.url, _without(at, error))
    return WayThere(at.url, unreached=unreached)


async def _read_outbox(settings: Settings, probe: BrokerProbe, *, long: bool) -> WayBack:
    """Read our test message and the agent's hello from our outbox; with ``long``, time a long one.

    A client that may read our outbox may write the test topic there. Mosquitto with
    ``max_queued_messages 0`` hangs up on a client that publishes what its ACL denies (2.0.11).
    """
    tried, hello = (
        outbox_topic(settings.federation, settings.broker_id, kind)
        for kind in (OUTBOX_TRIED, HELLO)
    )
    came: set[str] = set()
    long_s: float | None = None
    await probe.subscribe(tried, hello)
    try:
        await probe.publish(tried, DOCTORS_WORD)
        async with asyncio.timeout(settings.links.hello_interval_ms * 2 / 1000):
            while len(came) < 2:
                came.add((await probe.next_message()).topic)
    except (TimeoutError, LinkError):
        pass
    if long and tried in came:
        long_s = await _long_way(probe, tried)
    return WayBack(may_read=bool(came), agent_publishes=hello in came, long_s=long_s)


async def _long_way(probe: BrokerProbe, topic: str) -> float:
    """How long a long publication takes to us."""
    began_s = time.monotonic()
    try:
        await probe.publish(topic, bytes(LONG_BYTES))
        async with asyncio.timeout(LONG_SECONDS_MAX):
            while len((await probe.next_message()).payload) < LONG_BYTES:
                pass
    except (TimeoutError, LinkError):
        return LONG_SECONDS_MAX
    return time.monotonic() - began_s


def _without(at: NeighbourSettings, error: LinkError) -> str:
    """The text of ``error`` without the address that stands beside it."""
    return str(error).removeprefix(f"{at.reached_at}: ")

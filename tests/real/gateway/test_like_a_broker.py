"""What a client says to a gateway is answered as the broker behind it would: packet by packet.

Two brokers live through the same history, one of them behind a gateway. Clients say the same random
but proper things to both, in any order that MQTT allows and in some that only vandals choose:
acknowledgements of nothing, packet ids used twice, releases before publications.
"""

import asyncio
import contextlib
import os
import random

import pytest

from federator.gateway import wire
from federator.gateway.wire import V5, V311, Kind, Property
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from tests.real.gateway.raw import Raw, connect

DIALOGUES = int(os.environ.get("DIALOGUES", "8"))
SENTENCES_MAX = 12
QUIET_S = 0.15
"""Nothing that was on its way takes longer; what comes too late shows in the next dialogue."""

TOPICS = ("a", "a/b", "b", "b/c/d")
FILTERS = ("a", "a/#", "+/b", "#", "b/+/d", "$share/g/a", "nobody")


def sentence(rng, version):
    """One packet of a client."""
    packet_id = rng.randrange(1, 5)
    match rng.randrange(10):
        case 0 | 1 | 2 | 3:
            properties = ()
            if version == V5 and rng.random() < 0.3:
                properties = (
                    (Property.CONTENT_TYPE, "text"),
                    (Property.USER_PROPERTY, ("k", "v")),
                )
            return wire.write_publish(
                rng.choice(TOPICS),
                rng.randbytes(rng.randrange(4)),
                version=version,
                qos=rng.randrange(3),
                retain=rng.random() < 0.2,
                packet_id=packet_id,
                properties=properties,
            )
        case 4 | 5:
            options = rng.randrange(3)
            if version == V5:
                options |= rng.choice((0, 0, wire.RETAIN_AS_PUBLISHED, 0x10, 0x20))
            wish = tuple((each, options) for each in rng.sample(FILTERS, rng.randrange(1, 3)))
            return wire.write_request(wire.Subscribe(packet_id, wish), version)
        case 6:
            gone = tuple(rng.sample(FILTERS, 2))
            return wire.write_request(wire.Unsubscribe(packet_id, gone), version)
        case 7:
            kind = rng.choice((Kind.PUBACK, Kind.PUBREC, Kind.PUBCOMP))
            return wire.write_ack(kind, packet_id, version)
        case 8:
            return wire.write_ack(Kind.PUBREL, packet_id, version)
        case _:
            return wire.PINGREQ


class Speaker(Raw):
    """Says one thing at a time."""

    async def say(self, packet):
        """Say it, and ping; returns when the ping was answered and nothing more comes."""
        self.writer.write(packet + wire.PINGREQ)
        before = self.heard.count(wire.PINGRESP)
        await self.until(lambda: self.heard.count(wire.PINGRESP) > before)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIET_S):
                await self.until(lambda: False)


async def dialogue(port, seed, version):
    """All that is heard: lists of packets, sorted, for the order of answers is nobody's promise."""
    rng = random.Random(seed)
    told = []
    name = f"client-{seed % 3}"
    speaker = Speaker()
    hello = connect(version, name, clean=rng.random() < 0.5, keep_alive=0)
    told.append((await speaker.begin(port, hello)).session_present)
    for _ in range(rng.randrange(1, SENTENCES_MAX)):
        await speaker.say(sentence(rng, version))
        if speaker.closed:  # what is said before differs: a gateway has answered the ping
            told.append("closed")
            break
        told.append(sorted(speaker.heard))
        speaker.heard.clear()
    await speaker.leave()
    return told


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_client_hears_from_a_gateway_what_it_would_hear_from_the_broker(
    start_broker, tmp_path, version
):
    alone, behind = await start_broker(), await start_broker()
    config = GatewayConfig("g", {1: behind.url})
    async with GatewayProcess(tmp_path / "gateway", config) as gateway:
        for seed in range(DIALOGUES):
            directly, through = await asyncio.gather(
                dialogue(alone.port, seed, version),
                dialogue(gateway.port, seed, version),
            )

            assert through == directly, f"dialogue {seed}"

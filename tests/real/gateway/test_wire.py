"""The gateway's packet layer beside a real broker.

What it accepts of a hostile client it passes on; if a broker closed a connection for that, the
gateway would take the broker for dead and carry the vandalism to the next one.
"""

import asyncio

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from federator.gateway import wire
from federator.gateway.wire import V5, V311, Kind, Property
from tests.gateway.corpus import client_packets, reframed, vandalized
from tests.gateway.wire.test_wire_hostile import verdict

PACKETS, VARIANTS = 60, 20
ANSWER_WITHIN_S = 30.0
SMALLEST_SANE_MAXIMUM = 100
"""A client may ask for no packet longer than its CONNACK, and gets nothing at all."""


def good_packets(version):
    """Different packets, the same in every run."""
    drawn: list[bytes] = []

    @settings(
        max_examples=PACKETS,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(client_packets(version))
    def draw(packet):
        drawn.append(packet)

    draw()
    return drawn


def accepted(version):
    """Vandalized packets that we read without a complaint, the endings of connections aside."""
    for seed, packet in enumerate(good_packets(version)):
        for hostile in vandalized(packet, seed, VARIANTS):
            stream = reframed(hostile)
            taken, reason = verdict(stream, version)
            if reason is not None or b"".join(whole for whole, _ in taken) != stream:
                continue
            if any(whole[0] in (Kind.DISCONNECT, Kind.AUTH) for whole, _ in taken):
                continue
            if not wants_nothing(stream, version):
                yield stream


def wants_nothing(stream, version):
    """Whether its CONNECT allows no packet as long as a CONNACK."""
    taken, _ = verdict(stream, version)
    return any(
        isinstance(said, wire.Connect)
        and wire.number_in(said.properties, Property.MAXIMUM_PACKET_SIZE, SMALLEST_SANE_MAXIMUM)
        < SMALLEST_SANE_MAXIMUM
        for _, said in taken
    )


async def survives(port, stream, version):
    """Whether the broker still answers a ping behind ``stream``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if stream[0] != Kind.CONNECT:
            writer.write(wire.write_connect(wire.Connect(version, "", clean=True, keep_alive=0)))
        writer.write(stream + wire.PINGREQ)
        heard = b""
        async with asyncio.timeout(ANSWER_WITHIN_S):
            while not heard.endswith(wire.PINGRESP):
                more = await reader.read(65_536)
                if not more:
                    return False
                heard += more
        return True
    except ConnectionError:
        return False
    finally:
        writer.close()


@pytest.mark.parametrize("version", [V311, V5])
async def test_nothing_we_accept_makes_the_broker_hang_up(broker, version):
    streams = list(accepted(version))
    assert len(streams) > PACKETS

    # One after the other: their client ids collide, and what one publishes another has subscribed.
    hung_up = [stream for stream in streams if not await survives(broker.port, stream, version)]

    assert hung_up == []

"""``federator tap`` on a real broker: what neighbours say, decoded."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from federator.config.reading import load
from federator.protocol.forwarding.frames import Frame, pack
from federator.protocol.messages.codec import encode
from federator.protocol.messages.control import CoreAnn, Hello
from federator.protocol.types import BrokerId, ConnId, Cost, Epoch
from federator.runtime.mqtt.probe import BrokerProbe
from lab.grid.processes.broker import BrokerProcess

TEST_SECONDS_MAX = 300.0

HELLO = Hello(1, BrokerId(2), Epoch(5), ConnId(1), 12, "mqtt://b", ())
ANNOUNCEMENT = CoreAnn(
    *(BrokerId(2), BrokerId(1), 0, Epoch(5), 9, Cost(1), True),
    tuple(f"sensors/{i}" for i in range(20)),
    *((), 77, 20),
)
FRAME = Frame(
    flags=0,
    hops=1,
    hop_limit=64,
    sender=BrokerId(2),
    origin=BrokerId(3),
    epoch=Epoch(5),
    seq=42,
    origin_time_us=1,
    publications=1,
    keys=(7).to_bytes(8, "big") + (9).to_bytes(8, "big"),
    mask=0b10,
    body=memoryview(b"\x30\x05\x00\x01a\x00x"),
)


async def tapped(broker: BrokerProcess, config: Path, *options: str) -> list[str]:
    """The lines of a tap that has seen one of each kind of message."""
    said = [
        ("hello", encode(HELLO)),
        ("core_ann", encode(ANNOUNCEMENT)),
        ("data", pack(FRAME)),
        ("ctl", b"\xc1 garbage"),
        ("new_regular_topic", "a/é".encode()),
    ]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "federator", "tap", "-c", str(config)),
        *("--count", str(len(said)), *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.timeout(TEST_SECONDS_MAX):
        assert (await process.stderr.readline()).startswith(b"listening to $fed/fed on ")
        neighbour = load(config, {}).broker
        async with BrokerProbe(neighbour, client_id="federator-2-to-1") as probe:
            for kind, payload in said:
                await probe.publish(f"$fed/fed/{kind}", payload)
        out = await process.stdout.read()
        assert await process.wait() == 0
    return out.decode().splitlines()


@pytest.fixture
async def config(broker: BrokerProcess, tmp_path: Path) -> Path:
    path = tmp_path / "federator.toml"
    path.write_text(f'[broker]\nid = 1\nurl = "{broker.url}"\n')
    return path


async def test_machines_get_every_field(broker, config):
    lines = await tapped(broker, config, "--json")

    hello, announcement, data, garbage, spoken = (json.loads(line) for line in lines)
    assert (hello["message"], hello["sender"], hello["address"]) == ("Hello", 2, "mqtt://b")
    assert announcement["added"] == list(ANNOUNCEMENT.added)
    assert data["frame"]["filter_keys"] == ["0000000000000007", "0000000000000009"]
    assert data["frame"]["responsible_for"] == ["0000000000000009"]
    assert (data["frame"]["origin"], data["frame"]["seq"], data["frame"]["qos"]) == (3, 42, "0")
    assert garbage["kind"] == "ctl"
    assert garbage["error"]
    assert spoken["text"] == "a/é"


async def test_people_get_one_short_line_each(broker, config):
    lines = await tapped(broker, config)

    assert len(lines) == 5
    assert "hello" in lines[0]
    assert "sender=2" in lines[0]
    assert "sensors/7,+12]" in lines[1]
    assert "origin=3" in lines[2]
    assert all(len(line) < 1_000 for line in lines)


async def test_a_broker_that_goes_away_ends_the_tap_with_69(broker, config):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "federator", "tap", "-c", str(config)),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None

    async with asyncio.timeout(TEST_SECONDS_MAX):
        await process.stderr.readline()
        broker.kill9()
        said = await process.stderr.read()

    assert await process.wait() == 69
    assert said.decode().startswith(f"federator: {broker.url}: ")
    assert said.count(b"\n") == 1

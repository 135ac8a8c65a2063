"""The metrics stream as it ends: the record of the stop is the last one, in a whole segment."""

import asyncio
from types import SimpleNamespace

import pytest

from federator.config.sections import MetricsSettings
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.parameters import Parameters
from federator.protocol.telemetry.frame_events import FrameEventBuffer
from federator.protocol.telemetry.records import Events, decode
from federator.runtime.telemetry.stream import MetricsStream
from federator.runtime.trust.words import SignedWords

FLUSH_MS = 10


@pytest.fixture
def stream(tmp_path):
    """It has a row to write in every window."""
    window = [(Events, {"at_us": 1, "kind": "window"})]
    return MetricsStream(
        settings=MetricsSettings(enabled=True, flush_ms=FLUSH_MS),
        federation="fed",
        frame_events=FrameEventBuffer(),
        state=SimpleNamespace(
            node=SimpleNamespace(links=SimpleNamespace(self_id=3, epoch=7)),
            parameters=Parameters(),
            data_path=SimpleNamespace(forwarder=Forwarder()),
            rows=lambda links, when, lag_us: window,
        ),
        link=SimpleNamespace(connected=False),
        folder=tmp_path,
        words=SignedWords(None),
    )


async def test_nothing_is_written_behind_the_record_of_the_stop(stream, tmp_path):
    running = asyncio.create_task(stream.run())
    await asyncio.sleep(5 * FLUSH_MS / 1_000)

    await stream.leave()
    await asyncio.sleep(5 * FLUSH_MS / 1_000)
    running.cancel()

    (segment,) = tmp_path.glob("*.jsonl")
    kinds = [decode(line).kind for line in segment.read_bytes().splitlines()]
    assert (kinds[0], kinds[-1]) == ("window", "agent_stopped")
    assert list(tmp_path.glob(".*.open")) == []

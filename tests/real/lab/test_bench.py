"""The bench on real processes: it measures what it says, and it notices what it must."""

import asyncio
import contextlib
import json
import sys

import pytest

from federator.errors import LinkError
from lab.bench.filters import measure_filters
from lab.bench.generator import pace, saturate
from lab.bench.wire import Layout, Wire, open_connection, topics
from tests.real.polling import until

LAYOUT = Layout("bench/t", 0, 64)
RUN_TIMEOUT_S = 200.0


def wire_to(broker, layout=LAYOUT):
    place = (broker.host, broker.port)
    return Wire.connect(layout, publish_at=place, subscribe_at=place, name="test")


@pytest.mark.parametrize(("size", "window"), [(64, 200), (1_000_000, 2)])
@pytest.mark.parametrize("qos", [0, 1])
async def test_saturation_counts_every_message_once(broker, qos, size, window):
    with contextlib.closing(wire_to(broker, Layout("bench/t", qos, size))) as wire:
        outcome = await asyncio.to_thread(
            saturate, [wire], run=1, window=window, seconds=0.4, warm_up_s=0.1
        )

    assert outcome.exact
    assert outcome.disordered == 0
    assert outcome.sent > window  # credit came back
    assert outcome.rate > 0


@pytest.mark.parametrize("qos", [0, 1])
async def test_many_pairs_share_the_window_and_each_message_is_counted_once(broker, qos):
    place = (broker.host, broker.port)
    with contextlib.ExitStack() as stack:
        wires = [
            stack.enter_context(
                contextlib.closing(
                    Wire.connect(
                        Layout(topic, qos, 64), publish_at=place, subscribe_at=place, name=topic
                    )
                )
            )
            for topic in topics("bench/t", 3)
        ]
        outcome = await asyncio.to_thread(
            saturate, wires, run=1, window=300, seconds=0.4, warm_up_s=0.1
        )
        paced = await asyncio.to_thread(pace, wires, run=2, rate=500.0, seconds=0.5)

    assert outcome.exact
    assert outcome.sent > 300
    assert paced.exact
    assert paced.sent == 250
    assert sorted(wire.sent for wire in wires) == [83, 83, 84]


async def test_pacing_publishes_what_is_due_and_measures_every_delay(broker):
    with contextlib.closing(wire_to(broker)) as wire:
        outcome = await asyncio.to_thread(pace, [wire], run=1, rate=500.0, seconds=0.5)

    assert outcome.exact
    assert outcome.sent == 250
    assert 0 < outcome.delay_us_p50 <= outcome.delay_us_p99


async def test_messages_that_the_broker_drops_are_lost(start_broker):
    broker = await start_broker(extra_config=("max_queued_messages 10",))
    with contextlib.closing(wire_to(broker, Layout("bench/t", 1, 64))) as wire:
        outcome = await asyncio.to_thread(
            saturate, [wire], run=1, window=5_000, seconds=0.4, warm_up_s=0.1
        )

    assert outcome.lost > 0
    assert not outcome.exact
    assert outcome.duplicates == outcome.foreign == 0


async def test_a_copy_is_a_duplicate_and_a_stranger_is_foreign(broker):
    place = (broker.host, broker.port)
    other = open_connection(*place, client_id="copier", subscribe=None, qos=0)
    with contextlib.closing(other), contextlib.closing(wire_to(broker)) as wire:
        wire.begin(1)
        wire.send(10)
        await until(lambda: received(wire, 10), "all ten arrive")

        rows = LAYOUT.blank(2, run=1)
        LAYOUT.number(rows, first=9, sent_ns=1)  # 9 again, and 10, which was never published
        other.send(rows.tobytes())
        await until(lambda: received(wire, 12), "the copy and the stranger arrive")

    ledger = wire.ledger
    assert (ledger.received, ledger.duplicates, ledger.foreign) == (10, 1, 1)


def received(wire, count):
    wire.receive()
    ledger = wire.ledger
    return ledger.received + ledger.duplicates + ledger.foreign >= count


async def test_a_load_generator_without_a_broker_says_so(broker):
    await broker.stop()

    with pytest.raises(LinkError, match="Connection refused"):
        wire_to(broker)


@pytest.mark.full
async def test_the_verb_measures_bridge_and_agents_and_writes_records(tmp_path):
    file = tmp_path / "bench.json"
    command = (
        "-m lab bench --quick --systems bridge,federator --hops 1 --rates 500 --windows 200 "
        f"--seconds 0.3 --link-delay-ms 5 --json {file}"
    )

    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command.split(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(RUN_TIMEOUT_S):
        output, errors = await process.communicate()

    assert process.returncode == 0, (output + errors).decode()
    records = json.loads(file.read_text())
    assert all(
        set(r) == {"system", "hops", "qos", "metric", "value", "unit", "repetitions"}
        for r in records
    )
    figures = {(r["system"], r["qos"], r["metric"]): r for r in records}
    for qos in (0, 1):
        for system in ("bridge", "federator"):
            assert figures[system, qos, "throughput"]["value"] > 0
            assert figures[system, qos, "throughput"]["unit"] == "msg/s"
            assert figures[system, qos, "delay_p50_at_500"]["value"] >= 5_000
            assert figures[system, qos, "broker_cpu_at_saturation"]["value"] > 0
        assert figures["federator", qos, "agent_cpu_at_saturation"]["value"] > 0
        ours, theirs = (figures[s, qos, "throughput"]["value"] for s in ("federator", "bridge"))
        ratio = figures["federator/bridge", qos, "throughput"]["value"]
        assert ratio == pytest.approx(ours / theirs)
    assert "throughput, 1 hop, QoS 0" in output.decode()


@pytest.mark.full
async def test_filters_are_counted_in_a_real_agent_whose_neighbour_dies(tmp_path):
    known = []

    costs = await measure_filters(tmp_path, filters=1_000, progress=known.append)

    assert known == [500, 1_000]
    assert 0 < costs.cached_us < costs.uncached_us
    assert 10 < costs.resident_empty_mb < 1_000
    assert 10 < costs.resident_mb < 1_000
    assert costs.loss_stall_ms > 0

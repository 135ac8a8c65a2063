"""The roads of ``federator-lab bench lossy``, over sockets, not TUN devices; its verdicts."""

import asyncio
import random
import socket
from collections import Counter

import pytest

from lab.bench.lossy.measure import Plan, Row, _model, judged
from lab.bench.lossy.roads import Way
from lab.bench.lossy.simulated import Line, World
from tests.real.polling import until


@pytest.fixture
def pair():
    ends = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    for each in (end for couple in ends for end in couple):
        each.setblocking(False)
    yield ends
    for each in (end for couple in ends for end in couple):
        each.close()


async def test_packets_arrive_whole_in_order_and_late_and_some_do_not(pair):
    (ours, source), (target, theirs) = pair
    loop = asyncio.get_running_loop()
    way = Way(source.fileno(), target.fileno(), delay_s=0.05, rng=random.Random(1))
    way.losses.plr, way.losses.abl = 0.2, 2.0
    begun_s, came = loop.time(), []

    def take():
        came.append((loop.time(), int(theirs.recv(2_048))))

    loop.add_reader(theirs, take)
    for number in range(400):
        await loop.sock_sendall(ours, b"%d" % number)
        await asyncio.sleep(0)
    await until(lambda: len(came) + way.lost == 400, "all came or are lost")
    loop.remove_reader(theirs)
    loop.remove_reader(source)

    numbers = [number for _, number in came]
    assert numbers == sorted(numbers)
    assert came[0][0] - begun_s >= 0.05
    assert 20 <= way.lost <= 160
    assert way.passed() == {"packets": 400, "bytes": 1_090, "lost": way.lost}


def row(transport, p99, **changes):
    options = {"qos": 0, "plr": 0.02, "offered": 1_000, "delivered": 1_000, "twice": 0}
    delays = {"p50": 150, "p95": 160, "p99": p99, "worst": 500}
    costs = {"bytes_per_publication": 1_000, "lost_packets": 0.02}
    return Row(transport=transport, **{**options, **delays, **costs, **changes})


def test_verdicts_are_those_of_the_bars():
    good = {"repairs_per_part": 1.0, "model": 1.0}
    lossless = {"plr": 0.0, "model": 0.0}

    def missed(p99s=(200, 200, 200), **changes):
        rows = [row("tcp", 400), row("udp-fec", 200, **{**good, **changes})]
        for turn, p99 in enumerate(p99s, 1):
            rows += [row("tcp", 400, turn=turn), row("udp-fec", p99, turn=turn, **good)]
        return [verdict.what for verdict in judged(rows) if not verdict.met]

    def missed_without_loss(repairs, size):
        rows = [row("tcp", 400, **lossless)]
        rows += [
            row("udp-fec", 400, repairs_per_part=repairs, bytes_per_publication=size, **lossless)
        ]
        return [verdict.what for verdict in judged(rows) if not verdict.met]

    assert missed() == missed(p99s=(10, 200, 999)) == []
    assert len(missed(p99s=(10, 201, 999))) == 1
    assert len(missed(delivered=998)) == 1
    assert missed(qos=0, delivered=999) == []
    assert len(missed(repairs_per_part=1.5)) == 1
    assert missed_without_loss(0.05, 1_050) == []
    assert len(missed_without_loss(0.06, 1_000)) == 1
    assert len(missed_without_loss(0.05, 1_060)) == 1


def test_the_model_is_that_of_groups_of_the_mean_length():
    plan = Plan()

    assert _model(Counter(parts=100, groups=100), 0.02, plan) == 4
    assert _model(Counter(parts=200, groups=100), 0.02, plan) == 2.5
    assert _model(Counter(parts=150, groups=100), 0.02, plan) == pytest.approx(4.5 / 1.5)
    assert _model(Counter(parts=100, groups=100), 0.0, plan) == 0


def test_of_frames_over_three_simulated_roads_few_wait_for_the_next_ones_repair_packets():
    passed = World(Line(count=600, learning_s=4.0), seed=1).run()

    assert len(passed.delays_ms) == 600
    assert passed.quantile_ms(0.5) == 150
    assert passed.quantile_ms(0.95) == 150
    assert passed.quantile_ms(0.99) == 150
    assert 3.5 <= passed.spent["repairs"] / passed.spent["parts"] <= 5.5

"""The roads of ``federator bench lossy``, over sockets instead of TUN devices, and its verdicts."""

import asyncio
import random
import socket
from collections import Counter

import pytest

from federator.bench.lossy.measure import Plan, Row, _model
from federator.bench.lossy.roads import Way
from federator.cli.bench_lossy import _verdicts
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
    way.plr, way.abl = 0.2, 2.0
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
    tcp = row("tcp", 400)

    def missed(*rows):
        return [text for met, text in _verdicts([tcp, *rows]) if not met]

    assert missed(row("udp-fec", 200, **good)) == []
    assert len(missed(row("udp-fec", 201, **good))) == 1
    assert len(missed(row("udp-fec", 200, delivered=998, **good))) == 1
    assert len(missed(row("udp-fec", 200, repairs_per_part=1.5, model=1.0))) == 1
    assert len(missed(row("udp-fec", 200, plr=0.0, repairs_per_part=0.06, model=0.0))) == 1


def test_the_model_is_that_of_groups_of_the_mean_length():
    plan = Plan()

    assert _model(Counter(parts=100, groups=100), 0.02, plan) == 3
    assert _model(Counter(parts=200, groups=100), 0.02, plan) == 2
    assert _model(Counter(parts=150, groups=100), 0.02, plan) == pytest.approx(3.5 / 1.5)
    assert _model(Counter(parts=100, groups=100), 0.0, plan) == 0

"""The erasure code, and how much of it is asked for, against brute force."""

import random

import pytest

from federator.protocol.datagrams.protection import LATE_MAX, LossMeter, repairs_for
from federator.protocol.datagrams.protection import Chain as Model
from federator.runtime.datagrams.raptor import RaptorCoder
from tests.protocol.datagrams.road import Chain, lost_distribution


def test_a_block_is_rebuilt_from_as_many_packets_as_it_has_parts():
    rng, coder, failed = random.Random(3), RaptorCoder(), 0

    for _ in range(1_000):
        parts, size, repairs = rng.randint(1, 20), 8 * rng.randint(2, 40), rng.randint(1, 10)
        symbols = [rng.randbytes(size) for _ in range(parts)]
        packets = dict(enumerate(symbols + coder.repairs(symbols, repairs)))
        kept = sorted(rng.sample(sorted(packets), parts))
        rebuilt = coder.rebuild(parts, size, {place: packets[place] for place in kept})
        failed += rebuilt is None
        assert rebuilt in (None, symbols)

    assert failed <= 15  # the code wants one packet more in about 2 of 1000


@pytest.mark.parametrize("missing", [1, 4])
def test_too_few_packets_rebuild_nothing(missing):
    coder, symbols = RaptorCoder(), [bytes([i]) * 64 for i in range(5)]
    packets = dict(list(enumerate(symbols + coder.repairs(symbols, 3)))[missing + 3 :])

    assert coder.rebuild(5, 64, packets) is None


@pytest.mark.parametrize(("plr", "abl"), [(0.02, 2.0), (0.1, 1.0), (0.05, 4.0)])
def test_the_model_agrees_with_chains_stepped_one_by_one(plr, abl):
    chain, sent, blocks = Chain(random.Random(6), plr, abl), 12, 20_000
    for _ in range(100):
        chain.loses()

    counts = [0] * (sent + 1)
    for _ in range(blocks):
        counts[sum(chain.loses() for _ in range(sent))] += 1
        for _ in range(50):  # messages are far apart
            chain.loses()

    expected = lost_distribution(plr, abl, sent)
    assert sum(expected) == pytest.approx(1.0)
    assert sum(k * p for k, p in enumerate(expected)) == pytest.approx(sent * plr)
    for lost in range(5):
        assert counts[lost] / blocks == pytest.approx(expected[lost], abs=0.01)


def test_a_block_is_whole_as_often_as_the_paper_says():
    assert lost_distribution(0.02, 2.0, 16)[0] == pytest.approx(0.8403, abs=5e-4)


@pytest.mark.parametrize(("parts", "repairs"), [(1, 1), (2, 2), (4, 1), (6, 3)])
def test_parts_are_late_or_stay_lost_as_often_as_the_model_says(parts, repairs):
    chain, groups, failed, late = Chain(random.Random(2), 0.1, 3.0), 40_000, 0, 0

    for _ in range(groups):
        a, b, c, d = (sum(chain.loses() for _ in range(n)) for n in (parts, repairs) * 2)
        late += a > 0 and a + b > repairs
        failed += a > 0 and a + b > repairs and a + c + d > repairs
        for _ in range(30):  # groups are far apart
            chain.loses()

    model = Model(0.1, 3.0).late_and_lost(parts, repairs)
    assert (late / groups, failed / groups) == pytest.approx(model, rel=0.1)


@pytest.mark.parametrize("parts", [1, 4, 16])
def test_repairs_are_the_fewest_that_do(parts):
    asked = repairs_for(parts, 0.02, 2.0, failing_max=0.002, repairs_max=16)

    chances = Model(0.02, 2.0).late_and_lost
    assert chances(parts, asked)[1] <= 0.002 < chances(parts, asked - 1)[1]


@pytest.mark.parametrize("parts", [1, 4])
def test_more_repairs_keep_short_groups_from_waiting_for_the_next(parts):
    limits = {"failing_max": 0.0005, "repairs_max": 16}
    few = repairs_for(parts, 0.02, 2.0, **limits)
    asked = repairs_for(parts, 0.02, 2.0, late_max=0.002, **limits)

    chances = Model(0.02, 2.0).late_and_lost
    assert asked == few + 1
    assert chances(parts, asked)[0] <= 0.002 < chances(parts, few)[0]


def test_nothing_lost_asks_for_nothing_and_worse_roads_ask_for_no_less():
    asked = [repairs_for(8, plr / 200, 2.0, failing_max=0.002, repairs_max=16) for plr in range(60)]

    assert asked[0] == 0
    assert asked == sorted(asked)
    assert repairs_for(8, 0.9, 99.0, failing_max=0.002, repairs_max=5) == 5


def test_the_meter_finds_loss_and_bursts():
    chain, meter = Chain(random.Random(1), 0.05, 3.0), LossMeter()

    for number in range(1, 20_000):
        if not chain.loses():
            meter.note(number)

    assert meter.plr == pytest.approx(0.05, rel=0.4)
    assert meter.abl == pytest.approx(3.0, rel=0.4)
    assert meter.lost == pytest.approx(chain.lost, abs=LATE_MAX)


def test_disorder_and_repeats_are_no_loss():
    meter, rng = LossMeter(), random.Random(2)
    numbers = sorted(range(1, 5_000), key=lambda n: n + rng.uniform(0, LATE_MAX / 2))

    for at, number in enumerate(numbers):
        meter.note(number)
        meter.note(rng.choice(numbers[: at + 1]))

    assert meter.lost == 0


def test_a_leap_of_numbers_is_a_new_beginning():
    meter = LossMeter()
    meter.note(1)
    meter.note(2**31)

    assert (meter.judged, meter.lost) == (0, 0)

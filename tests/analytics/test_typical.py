"""The delay over many pairs tells of delay, and not of which pairs spoke."""

import random
import re
from datetime import timedelta

import pytest
from federator_analytics.dashboard.app import fragments
from federator_analytics.digest.figures import summarise
from federator_analytics.digest.tables import Tables
from federator_analytics.digest.typical import typical_us

from tests.analytics.example_tables import START

NEAR_US, FAR_US = 5_600, 28_000


def rows(seconds, pairs, *, noise=0.0, slow=lambda window: 1, seed=1):
    """A row per window of 10 s and pair: (first second, end, p50 in us)."""
    draw = random.Random(seed)
    return [
        {
            "window_start": START + timedelta(seconds=at), "origin": 1, "destination": pair,
            "strategy": "mesh", "quality": "ok", "publications": 100,
            "delay_us_p50": (p50 := round(p50_us * slow(at) * draw.uniform(1 - noise, 1 + noise))),
            "delay_us_p95": p50 * 2, "delay_us_p99": p50 * 3,
        }
        for at in range(0, seconds, 10)
        for pair, (first, end, p50_us) in enumerate(pairs, 2)
        if first <= at < end
    ]  # fmt: skip


def p50_now(told):
    tables = Tables({"delay_over_time": told})
    (value,) = re.findall(r"delay now, p50</dt>.*?>([\d.]+) ms<", fragments(
        tables, summarise(tables))["tiles"], re.DOTALL)  # fmt: skip
    return float(value)


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 900, NEAR_US), (0, 1_800, FAR_US)],
        [(900, 1_800, NEAR_US), (0, 1_800, FAR_US)],
        [*[(0, 900, NEAR_US)] * 6, *[(0, 1_800, FAR_US)] * 5],
        [(0, 1_800, NEAR_US), *((at, at + 60, FAR_US) for at in range(0, 1_800, 120))],
    ],
    ids=["a near pair ends", "a near pair comes", "most end", "far pairs come and go"],
)
def test_the_typical_delay_does_not_jump_when_pairs_come_and_go(pairs):
    told = typical_us(rows(1_800, pairs, noise=0.05))

    values = list(told.values())
    assert len(values) == 180
    assert max(values) < 1.15 * min(values)
    assert NEAR_US < values[0] < FAR_US


def test_the_tile_of_now_does_not_jump_when_a_pair_ends():
    before = rows(900, [(0, 900, NEAR_US), (0, 900, FAR_US)])
    after = rows(910, [(0, 900, NEAR_US), (0, 910, FAR_US)])

    assert p50_now(after) == pytest.approx(p50_now(before), rel=0.02)


def test_when_all_ways_get_slower_so_does_the_typical_delay_though_pairs_end_meanwhile():
    pairs = [*[(0, 900, NEAR_US)] * 3, *[(0, 1_800, FAR_US)] * 2]

    told = typical_us(rows(1_800, pairs, slow=lambda at: 50 if at >= 800 else 1))

    values = list(told.values())
    assert list(told) == sorted(told)
    assert values[80] == pytest.approx(50 * values[79], rel=0.01)
    assert values[90:] == pytest.approx([values[80]] * 90, rel=0.01)


def test_of_one_pair_the_typical_delay_is_its_own_and_nothing_is_known_of_none():
    told = rows(600, [(0, 600, NEAR_US)], noise=0.5)

    assert list(typical_us(told).values()) == [row["delay_us_p50"] for row in told]
    assert typical_us([]) == {}
    assert set(typical_us(rows(20, [(0, 20, 0)])).values()) == {1}

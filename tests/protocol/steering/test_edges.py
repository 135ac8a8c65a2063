"""Plans as they travel, and how much is kept at the edge."""

import pytest

from federator.errors import DecodeError
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.messages.json_codec import decode, encode
from federator.protocol.messages.steering import STEERING_VERSION, Plan
from federator.protocol.steering.edge_follower import WINDOWS, KeptMeter


def told(**says):
    return Plan(STEERING_VERSION, "fed", 2, "s", 0, 1, 0, 1_000, **says)


def test_a_plan_travels_whole_and_one_of_former_days_says_nothing_of_the_edge():
    whole = told(keep="lp", collects=("a/#", "b"))
    assert decode(Plan, encode(whole)) == whole
    former = encode(told()).replace(b',"keep":"","collects":[]', b"")
    assert b"keep" not in former
    assert decode(Plan, former) == told()
    with pytest.raises(DecodeError):
        decode(Plan, encode(told(keep="x" * 17)))


def test_what_is_kept_is_a_mean_of_some_looks():
    counters = DataCounters()
    meter = KeptMeter(counters)
    assert meter.rates() == (0.0, 0.0)
    for look in range(2 * WINDOWS):
        counters.kept += 10
        counters.kept_bytes += 1_000
        meter.look(2_000 * look)
    assert meter.rates() == (5.0, 4_000.0)
    for look in range(2 * WINDOWS, 4 * WINDOWS):
        meter.look(2_000 * look)
    assert meter.rates() == (0.0, 0.0)

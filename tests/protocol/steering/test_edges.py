"""Plans as they travel, and how much is kept at the edge."""

import json

import pytest

from federator.errors import DecodeError
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.messages.json_codec import decode, encode
from federator.protocol.messages.steering import MESHES_MAX, STEERING_VERSION, Plan
from federator.protocol.steering.edge_follower import WINDOWS, KeptMeter


def told(**says):
    return Plan(STEERING_VERSION, "fed", 2, "s", 0, 1, 0, 1_000, **says)


def test_plans_travel_whole_and_those_of_older_and_newer_steerers_are_read():
    whole = told(keep="lp", collects=("a/#", "b"), priority=-2, meshes=("c",))
    assert decode(Plan, encode(whole)) == whole

    fields = json.loads(encode(told()))
    former = {
        key: fields[key] for key in fields.keys() - {"keep", "collects", "priority", "meshes"}
    }
    for other in (former, fields | {"not_yet": [1]}):
        assert decode(Plan, json.dumps(other).encode()) == told()


@pytest.mark.parametrize(
    "field",
    [
        {"keep": "x" * 17},
        {"priority": 2**31},
        {"priority": 1.5},
        {"meshes": ["x"] * (MESHES_MAX + 1)},
        {"meshes": [""]},
    ],
)
def test_a_plan_out_of_bounds_is_none(field):
    with pytest.raises(DecodeError):
        decode(Plan, json.dumps(json.loads(encode(told())) | field).encode())


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

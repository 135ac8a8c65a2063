"""How what is decided of cores gets into plans, beside old agents and old steerers."""

import json

import msgspec
import pytest

from federator.errors import DecodeError
from federator.planner.flow.watch import UNWATCHED
from federator.planner.steering.moves import Manner
from federator.planner.steering.placing import Placing
from federator.protocol.messages.json_codec import decode, encode
from federator.protocol.messages.steering import MESHES_MAX, STEERING_VERSION, Load, Plan
from federator.steerer.cores import ASK_GAP_MS, Cores, placing_text
from tests.planner.steering.test_placing import FILTER, Meshes

OLD = {
    "version": STEERING_VERSION, "federation": "fed", "broker": 4, "steerer": "s",
    "since_ms": 1, "number": 1, "made_ms": 1, "valid_ms": 1_000, "trees": [],
}  # fmt: skip


def decided(cores, seconds=30, *, obeyed=True):
    """What was decided and told in so much time, with agents that are asked by plans."""
    world, number, told = Meshes(), 1, []
    for _ in range(seconds // 2):
        world.asked, world.number = cores.asked or (), number
        heard = [(world.told(broker), world.now_ms) for broker in world.brokers]
        placing = cores.decide(heard, "", world.now_ms, UNWATCHED)
        if cores.follow(placing, obeyed=obeyed, number=number + 1, now_ms=world.now_ms):
            number += 1
            told.append((world.now_ms, placing))
        world.now_ms += 2_000
    return told


def test_plans_ask_and_then_say_who_is_preferred():
    cores = Cores(Manner(), wanted=True)

    (_, asking), (_, placing) = decided(cores)

    assert (asking.asked, cores.asked) == ((FILTER,), (FILTER,))
    assert placing.changed
    assert cores.priority(4) < cores.priority(1) < 0
    assert cores.snapshot()["decisions"][0]["moves"] == [f"{FILTER} (100/s): core 4, not 1"]
    cores.end()
    assert (cores.asked, cores.priority(4)) == (None, None)


def test_a_dry_run_asks_and_prints_and_gives_nobody_a_priority():
    cores = Cores(Manner(), wanted=True)

    decided(cores, obeyed=False)

    assert (cores.asked, cores.placed, cores.moves) == ((FILTER,), 0, 0)
    lines = placing_text(cores.last)
    assert "fall by 60%" in lines[0]
    assert lines[1].strip() == f"{FILTER} (100/s): core 4, not 1"


def test_new_questions_wait_for_a_while():
    cores = Cores(Manner(), wanted=True)
    cores.decide([(Meshes().told(4), 0)], "", 0, UNWATCHED)

    def follow(asked, now_ms):
        return cores.follow(Placing(asked=asked), obeyed=True, number=1, now_ms=now_ms)

    assert follow(("a",), 1_000)
    assert not follow(("b",), 1_000 + ASK_GAP_MS - 1)
    assert follow(("b",), 1_000 + ASK_GAP_MS)


def test_where_nobody_would_follow_nothing_is_asked():
    cores = Cores(Manner(), wanted=True)
    deaf = Meshes(followers=set())

    placing = cores.decide([(deaf.told(4), 0)], "", 0, UNWATCHED)

    assert not cores.follow(placing, obeyed=True, number=1, now_ms=0)
    assert cores.asked is None


def test_switched_off_nothing_is_asked_or_placed():
    cores = Cores(Manner(), wanted=False)

    assert decided(cores) == []
    assert (cores.asked, cores.placed) == (None, 0)


def test_a_successor_tells_what_was_told_before():
    cores = Cores(Manner(), wanted=True)
    before = decode(Plan, json.dumps(OLD | {"priority": -2, "meshes": ["a"]}).encode())

    cores.adopt([before, decode(Plan, json.dumps(OLD).encode())], now_ms=0, dry=False)

    assert cores.priority(4) == -2


def test_plans_of_older_and_newer_steerers_are_read():
    assert decode(Plan, json.dumps(OLD).encode()).priority is None
    assert decode(Plan, json.dumps(OLD).encode()).meshes is None
    newer = decode(Plan, json.dumps(OLD | {"not_yet": [1]}).encode())
    assert newer == decode(Plan, encode(newer))

    class OldLoad(msgspec.Struct):
        broker: int

    told = encode(Meshes().told(4))
    assert decode(OldLoad, told).broker == decode(Load, told).broker == 4


@pytest.mark.parametrize(
    "field",
    [
        {"priority": 2**31},
        {"priority": 1.5},
        {"meshes": ["x"] * (MESHES_MAX + 1)},
        {"meshes": [""]},
    ],
)
def test_a_plan_out_of_bounds_is_none(field):
    with pytest.raises(DecodeError):
        decode(Plan, json.dumps(OLD | field).encode())

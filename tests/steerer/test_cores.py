"""How what is decided of cores gets into plans."""

from msgspec.structs import replace

from federator.planner.flow.watch import UNWATCHED
from federator.planner.steering.moves import Manner
from federator.planner.steering.placing import Placing
from federator.protocol.messages.steering import STEERING_VERSION, Plan
from federator.steerer.cores import ASK_GAP_MS, Cores, placing_text
from tests.planner.steering.test_placing import FILTER, Meshes


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
    assert cores.priorities[4] < cores.priorities[1] < 0
    assert cores.snapshot()["decisions"][0]["moves"] == [f"{FILTER} (100/s): core 4, not 1"]
    cores.end()
    assert (cores.asked, cores.priorities) == (None, {})


def test_a_dry_run_asks_and_prints_and_gives_nobody_a_priority():
    cores = Cores(Manner(), wanted=True)

    decided(cores, obeyed=False)

    assert (cores.asked, cores.priorities, cores.moves) == ((FILTER,), {}, 0)
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
    assert (cores.asked, cores.priorities) == (None, {})


def test_a_successor_tells_what_was_told_before():
    cores = Cores(Manner(), wanted=True)
    plan = Plan(STEERING_VERSION, "fed", 5, "s", 1, 1, 1, 1_000)

    cores.adopt([replace(plan, broker=4, priority=-2, meshes=("a",)), plan], now_ms=0, dry=False)

    assert cores.priorities == {4: -2}

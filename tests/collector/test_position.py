"""One spool: asked in order, taken in order, landed in order."""

import json

import pytest

from federator.collector.position import PIECES_MAX
from tests.collector.world import START_US, ModelAgent, World, line


@pytest.fixture
def agent():
    return ModelAgent(3)


@pytest.fixture
def world(agent):
    return World(agent)


def test_what_an_agent_holds_is_landed_whole_and_in_order(agent, world):
    for _ in range(50):
        agent.flush(rows=2)

    world.settle()

    assert world.check() == {}
    assert world.end(3, agent.spool) == 50


def test_the_window_doubles_while_questions_are_answered(agent, world):
    for _ in range(40):
        agent.flush()

    world.settle()

    sizes = [each.last - each.first + 1 for each in world.asked]
    assert sizes[:4] == [1, 2, 4, 8]
    assert max(sizes) == 8


def test_nothing_is_asked_again_while_answers_come(agent, world):
    for _ in range(40):
        agent.flush()

    world.settle()

    assert len({each.first for each in world.asked}) == len(world.asked)


def test_an_answer_that_got_lost_is_asked_for_again(agent, world):
    agent.flush()
    world.heads()
    world.step(fate=lambda: [])

    world.run(400)
    assert len(world.asked) == 1
    world.settle()

    assert [(each.first, each.last) for each in world.asked] == [(1, 1), (1, 1)]
    assert world.check() == {}


def test_a_silent_agent_is_asked_more_and_more_slowly_and_for_ever(agent, world):
    agent.flush()
    world.heads()

    world.run(60_000, fate=lambda: [])
    slow = len(world.asked)

    assert 35 < slow < 60  # every 1.5 s at last
    world.settle()
    assert world.check() == {}


def test_after_a_reconnect_the_question_is_asked_at_once(agent, world):
    agent.flush()
    world.heads()
    world.step(fate=lambda: [])

    world.collection.on_down(3)
    world.step()
    assert len(world.asked) == 1
    world.collection.on_up(3)
    world.step()

    assert len(world.asked) == 2


def test_what_the_spool_dropped_is_landed_as_one_gap(agent, world):
    agent.batches_max = 10
    for _ in range(30):
        agent.flush()

    world.settle()

    assert world.check() == {(3, agent.spool): dict.fromkeys(range(1, 21), "dropped by the spool")}
    (piece,) = (piece for piece in world.landed[3, agent.spool] if piece.gap)
    assert json.loads(b"".join(piece.lines)) == {
        "v": 1,
        "table": "events",
        "federation": "fed",
        "broker": 3,
        "epoch": 0,
        "spool": agent.spool,
        "batch": 1,
        "row": 0,
        "at_us": START_US,
        "window_ms": 0,
        "kind": "collector_gap",
        "neighbour": None,
        "filter": None,
        "subject": None,
        "detail": "batches 1 to 20: dropped by the spool",
        "value": 20,
    }
    assert [n.details["last"] for n in world.notices if n.name == "collector.gap"] == [20]


def test_batches_that_the_agent_answers_without_are_gaps_and_the_rest_is_landed(agent, world):
    for _ in range(20):
        agent.flush()
    agent.damaged = {1, 7, 8, 20}

    world.settle()

    lost = world.check()[3, agent.spool]
    assert lost == dict.fromkeys([1, 7, 8, 20], "not in the spool")


def test_one_unreadable_batch_costs_itself_and_no_other(agent, world):
    for _ in range(20):
        agent.flush()
    agent.written[agent.spool][9] = b'{"v":1,"tab\n'

    world.settle()

    assert world.check() == {(3, agent.spool): {9: "unreadable"}}
    asked_for_it = [each for each in world.asked if each.first == each.last == 9]
    assert len(asked_for_it) == 5


def test_a_batch_that_is_held_and_never_given_is_given_up_after_five_answers(agent, world):
    agent.flush()
    agent.flush()
    world.heads()

    for _ in range(5):
        world.run(60, fate=lambda: [])
        assert world.hear(3, agent.again(1, 0))
    world.settle()

    assert world.check() == {(3, agent.spool): {1: "not given"}}
    assert [(each.first, each.last) for each in world.asked[:5]] == [(1, 1)] * 5


def test_what_a_lost_disk_took_along_is_a_gap_once_the_agent_says_that_it_has_nothing(agent, world):
    for _ in range(6):
        agent.flush()
    world.heads()
    world.step()
    world.step()  # one batch is taken, and the answer told of six
    world.on_wire.clear()
    old = agent.spool
    agent.lose_disk()
    agent.flush()

    world.settle()

    world.run(2_000)
    assert world.check() == {(3, old): dict.fromkeys(range(2, 7), "spool replaced")}
    assert world.end(3, agent.spool) == 1


def test_a_spool_that_only_claims_to_be_new_ends_nothing(agent, world):
    agent.flush()
    world.settle()

    for claim in range(1, 100):
        forged = ModelAgent(3)
        forged.spool = f"{claim:016x}"
        forged.last = 10**18
        world.head(forged.head())
        world.step()
    agent.flush()
    world.settle()

    assert world.check() == {}
    assert len(list(world.collection.positions())) <= 5


def test_a_head_alone_makes_no_gap(agent, world):
    agent.flush()
    world.settle()
    true, agent.first, agent.last = agent.last, 500, 600

    world.heads()
    agent.first, agent.last = 1, true
    world.run(3_000)
    agent.flush()
    world.settle()

    assert world.check() == {}


def test_a_spool_that_went_back_is_told(agent, world):
    for _ in range(5):
        agent.flush()
    world.settle()

    agent.last = 2
    world.heads()

    assert [n.name for n in world.notices if n.level == "error"] == ["collector.spool_went_back"]


def test_a_full_disk_stops_the_asking_and_loses_nothing(agent, world):
    world.disk_works = False
    for number in range(500):
        agent.flush(rows=3)
        if number % 5 == 0:
            world.heads()
            world.run(100)

    (position,) = world.collection.positions()
    assert position.landed == 0
    assert position.bytes < (PIECES_MAX + 2) * 8 * 1_000
    world.settle()
    assert world.check() == {}


def test_memory_is_bounded_over_all_spools_and_nothing_is_lost():
    agents = [ModelAgent(broker) for broker in range(20)]
    world = World(*agents, bytes_max=20_000)
    for agent in agents:
        for _ in range(60):
            agent.flush(rows=4)
    most = 0

    for _ in range(300):
        world.heads()
        world.step()
        most = max(most, world.collection.bytes_held)
    world.settle()

    assert 10_000 < most <= 20_000
    assert world.collection.counters.no_room
    assert world.check() == {}


def test_a_file_ends_with_the_hour_of_its_batches(agent, world):
    hour_us = 3_600_000_000
    for number in range(1, 5):
        agent.flush()
        at_us = START_US // hour_us * hour_us + (number // 3) * hour_us
        agent.written[agent.spool][number] = line(3, agent.spool, number, 0, at_us=at_us)

    world.settle()

    assert [(p.first, p.last) for p in world.landed[3, agent.spool]] == [(1, 2), (3, 4)]


def test_stopping_lands_what_is_in_memory_at_once(agent, world):
    agent.flush()
    world.heads()
    world.step()
    world.step()
    assert world.collection.bytes_held

    (order,) = world.collection.due(now_ms=world.now_ms, all_=True)
    world.collection.on_landed(order)

    assert world.collection.settled
    assert (order.first, order.last) == (1, 1)

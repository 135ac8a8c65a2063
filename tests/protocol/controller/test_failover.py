"""The controller among real nodes: elections, takeovers, returns, splits, draining."""

import pytest

from federator.protocol.effects import StepBack, StepIn
from federator.protocol.events import NeighbourDisconnected, Received
from federator.protocol.messages.control import Bye
from federator.protocol.messages.session_records import FlowRow
from tests.protocol.controller.brokers import GONE_MS, Brokers, kept
from tests.protocol.network import grid_links

RING = [(1, 2), (2, 3), (3, 4), (4, 5), (5, 1), (2, 4), (2, 5), (3, 5)]


@pytest.fixture
def ring():
    brokers = Brokers(RING)
    brokers.run(5_000)
    return brokers


def test_the_smallest_rank_in_reach_is_the_controller_and_plans_for_everyone(ring):
    assert ring.controllers() == {1}
    for guide in ring.guides.values():
        assert {b.id: b.state for b in guide.brokers} == dict.fromkeys(range(1, 6), "up")
        assert all(len(b.substitutes) == 4 for b in guide.brokers)
        assert (guide.epoch, guide.number) == (ring.guides[1].epoch, ring.guides[1].number)


def test_the_least_loaded_is_planned_first_and_among_equals_the_nearest(ring):
    ring.say(2, load=50)
    ring.say(5, load=50)

    ring.run(3_000)

    plan = next(b for b in ring.guides[3].brokers if b.id == 1).substitutes
    assert plan == (3, 4, 2, 5)
    plan = next(b for b in ring.guides[3].brokers if b.id == 4).substitutes
    assert plan == (3, 1, 2, 5)


def test_equivalence_weighs_more_than_load_and_distance(ring):
    ring.say(4, load=900)
    for broker in (1, 4):
        ring.rows(broker, FlowRow("x", "pub", "t"), FlowRow("y", "sub", "t"))

    ring.run(3_000)

    plan = next(b for b in ring.guides[2].brokers if b.id == 1).substitutes
    assert plan[0] == 4


def test_a_broker_that_dies_gets_the_substitute_that_the_guide_named(ring):
    named = next(b for b in ring.guides[2].brokers if b.id == 4).substitutes[0]

    ring.kill(4)
    ring.run(GONE_MS)

    assert ring.takeovers(4) == {4: named}
    assert ring.state(1, 4) == "gone"


def test_the_controllers_own_death_twice_in_a_row_moves_only_the_clients_of_the_dead():
    brokers = Brokers(grid_links(3, 3))
    brokers.run(5_000)

    brokers.kill(8)
    brokers.run(GONE_MS)
    first = brokers.takeovers(8)[8]
    brokers.kill(0)
    brokers.run(GONE_MS)
    brokers.kill(1)
    brokers.run(GONE_MS)

    assert brokers.controllers(0, 1, 8) == {2}
    told = brokers.takeovers(0, 1, 8)
    assert sorted(told) == [0, 1, 8]
    assert told[8] == first or first in (0, 1)
    assert not {0, 1, 8} & set(told.values())


def test_a_substitute_that_dies_is_replaced_and_its_own_clients_too(ring):
    ring.kill(4)
    ring.run(GONE_MS)
    substitute = ring.takeovers(4)[4]

    ring.kill(substitute)
    ring.run(GONE_MS)

    told = ring.takeovers(4, substitute)
    assert sorted(told) == sorted([4, substitute])
    assert not {4, substitute} & set(told.values())


@pytest.mark.parametrize("forgets", [False, True])
def test_a_deposed_controller_that_returns_leaves_every_takeover_as_it_is(ring, forgets):
    ring.kill(1)
    ring.run(GONE_MS)
    ring.kill(4)
    ring.run(GONE_MS)
    assert ring.controllers(1, 4) == {2}
    before, term = ring.takeovers(1, 4)[4], ring.guides[2].epoch

    ring.revive(1, forgets=forgets)
    ring.run(6_000)

    assert ring.controllers(4) == {1}
    assert ring.takeovers(4) == {4: before}
    assert ring.guides[3].epoch > term


def test_a_controller_that_returns_leaves_to_others_whom_they_took_over_from_it(ring):
    for broker in (2, 3, 5):
        ring.say(broker, load=100)
    ring.run(3_000)
    ring.kill(4)
    ring.run(GONE_MS)
    assert ring.takeovers(4) == {4: 1}, "the controller itself is the best substitute"
    ring.kill(1)
    ring.run(GONE_MS)
    before = ring.takeovers(1, 4)[4]
    assert before != 1
    ring.steps.clear()

    ring.revive(1)
    for _ in range(300):
        ring.run(20)
        for id in (2, 3, 5):
            named = {t.broker: t.substitute for t in ring.guides[id].takeovers}
            assert named[4] == before

    assert ring.controllers(4) == {1}
    assert ring.takeovers(4) == {4: before}
    for_4 = [(id, step) for id, step in ring.steps if step.broker == 4]
    assert not for_4, "nobody prepares sessions twice, or drops what is prepared"


def test_a_controller_that_restarts_before_anybody_replaces_it_learns_what_it_had_ordered(ring):
    for load in (1, 2, 3, 5):  # another substitute would be better by now
        ring.say(load, load=10 * load)
    ring.run(3_000)
    ring.kill(4)
    ring.run(GONE_MS)
    before = ring.takeovers(4)
    ring.say(before[4], load=900)
    ring.run(3_000)

    ring.kill(1)
    ring.run(100)
    ring.revive(1, forgets=True)
    ring.run(6_000)

    assert ring.controllers(4) == {1}
    assert ring.takeovers(4) == before


def test_a_broker_that_is_back_is_nobodys_any_more(ring):
    ring.kill(4)
    ring.run(GONE_MS)

    ring.revive(4)
    ring.run(GONE_MS)

    assert ring.takeovers() == {}
    assert ring.state(2, 4) == "up"


def test_a_link_that_blinks_changes_nothing():
    brokers = Brokers([(1, 2), (2, 3)])
    brokers.run(5_000)
    terms = {i: g.epoch for i, g in brokers.guides.items()}

    brokers.cut(2, 3)
    brokers.connect(2, 3)
    brokers.connect(3, 2)
    brokers.run(GONE_MS)

    assert brokers.takeovers() == {}
    assert brokers.controllers() == {1}
    assert {i: g.epoch for i, g in brokers.guides.items()} == terms


def test_each_half_of_a_split_has_a_controller_and_merging_moves_nobody():
    brokers = Brokers([(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)])
    brokers.run(5_000)

    brokers.cut(3, 4)
    brokers.run(60_000)
    halves = [{i: brokers.guides[i] for i in half} for half in ((1, 2, 3), (4, 5, 6))]
    for half, controller in zip(halves, (1, 4), strict=True):
        for guide in half.values():
            assert guide.controller == controller
            assert {t.broker for t in guide.takeovers} == set(range(1, 7)) - set(half)
            assert {b.id for b in guide.brokers if b.state == "up"} == set(half)
    brokers.connect(3, 4)
    brokers.connect(4, 3)
    brokers.run(5_000)

    assert brokers.controllers() == {1}
    assert brokers.takeovers() == {}
    assert all(b.state == "up" for g in brokers.guides.values() for b in g.brokers)


def test_what_died_during_a_split_has_one_substitute_for_all_afterwards():
    brokers = Brokers([(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)])
    brokers.run(5_000)
    brokers.cut(3, 4)
    brokers.run(5_000)
    brokers.kill(6)
    brokers.run(5_000)

    brokers.connect(3, 4)
    brokers.connect(4, 3)
    brokers.run(5_000)

    told = brokers.takeovers(6)
    assert sorted(told) == [6]
    assert told[6] in range(1, 6)


def test_an_agent_that_dies_beside_a_living_broker_moves_nobody_for_a_while(ring):
    """Its neighbours hear its Will; their connections to its broker stand."""
    node = ring.nodes[4]
    for neighbour in (3, 5):
        conn = node.links.neighbours[neighbour].conn
        bye = Bye(4, node.links.epoch, conn)
        ring.at(ring.now_ms, neighbour, Received(bye))
    ring.nodes[4] = _Dead()

    ring.run(10_000)
    assert ring.state(1, 4) == "up"
    assert ring.takeovers(4) == {}
    ring.run(10_000)

    assert ring.state(1, 4) == "gone"
    assert 4 in ring.takeovers(4)


def test_an_orphan_whose_broker_dies_too_is_gone_soon(ring):
    node = ring.nodes[4]
    conns = {n: node.links.neighbours[n].conn for n in (3, 5)}
    for neighbour, conn in conns.items():
        ring.at(ring.now_ms, neighbour, Received(Bye(4, node.links.epoch, conn)))
    ring.nodes[4] = _Dead()
    ring.run(5_000)

    for (owner, conn), target in list(ring._conns.items()):
        if target == 4:
            ring.at(ring.now_ms, owner, NeighbourDisconnected(conn))
    ring.run(GONE_MS)

    assert ring.state(1, 4) == "gone"


def test_draining_is_ordered_anywhere_and_names_a_substitute_that_stays(ring):
    ring.drain(at=1, broker=3)
    ring.run(GONE_MS)

    assert ring.state(5, 3) == "draining"
    told = ring.takeovers()
    assert list(told) == [3]
    assert told[3] != 3
    plans = {b.id: b.substitutes for b in ring.guides[2].brokers}
    assert all(3 not in plan for plan in plans.values())
    assert not ring.steps, "nobody is dead: clients are moved by their gateways"

    ring.drain(at=4, broker=3, drain=False)
    ring.run(GONE_MS)

    assert ring.takeovers() == {}
    assert ring.state(5, 3) == "up"


def test_a_drained_broker_that_stops_keeps_the_substitute_it_was_drained_to(ring):
    ring.drain(at=1, broker=3)
    ring.run(GONE_MS)
    before = ring.takeovers()

    ring.kill(3)
    ring.run(GONE_MS)

    assert ring.takeovers(3) == before


def test_the_substitute_alone_steps_in_with_the_sessions_that_last(ring):
    plan = next(b for b in ring.guides[2].brokers if b.id == 4).substitutes
    ring.rows(4, kept("c", "a/#"), kept("away", "b", on=False), FlowRow("gone", "sub", "x"))
    ring.rows(4, kept("moved", "m"), kept("minded", "m", gateway=True))
    ring.rows(plan[-1], kept("moved", "m"))
    ring.run(2_000)
    killed_ms = ring.now_ms

    ring.kill(4)
    ring.run(GONE_MS)

    substitute = ring.takeovers(4)[4]
    ((node, step),) = [(n, s) for n, s in ring.steps if n != 4]
    assert (node, type(step), step.broker) == (substitute, StepIn, 4)
    assert killed_ms <= step.missed_at_ms <= killed_ms + 1_000
    assert {(r.client, r.topic) for r in step.sessions} == {("c", "a/#"), ("away", "b")}


def test_who_came_to_the_substitute_first_is_among_those_it_steps_in_for(ring):
    plan = next(b for b in ring.guides[2].brokers if b.id == 4).substitutes
    ring.rows(4, kept("fast", "a"), kept("strayed", "a"))
    ring.run(2_000)

    ring.kill(4)
    ring.rows(plan[0], kept("fast", "a"))
    ring.rows(plan[1], kept("strayed", "a"))
    ring.run(GONE_MS)

    ((node, step),) = [(n, s) for n, s in ring.steps if n != 4]
    assert node == plan[0]
    assert {r.client for r in step.sessions} == {"fast"}


def test_the_substitute_of_the_dead_controller_knows_its_sessions(ring):
    ring.rows(1, kept("c", "a/#"))
    ring.run(2_000)

    ring.kill(1)
    ring.run(GONE_MS)

    steps = [(n, s) for n, s in ring.steps if n != 1]
    assert [(n, s.broker, len(s.sessions)) for n, s in steps] == [(ring.takeovers(1)[1], 1, 1)]


def test_the_substitute_steps_back_when_the_broker_is_back(ring):
    ring.kill(4)
    ring.run(GONE_MS)
    ring.revive(4)
    ring.run(GONE_MS)

    by = [(n, type(s)) for n, s in ring.steps if s.broker == 4]
    assert [kind for _, kind in by] == [StepIn, StepBack]
    assert len({n for n, _ in by}) == 1


def test_rows_that_went_while_a_broker_was_away_go_when_it_is_back(ring):
    ring.rows(4, kept("c", "a/#"), kept("d", "b"))
    ring.run(2_000)
    ring.kill(4)
    ring.run(GONE_MS)
    assert ring.nodes[2].failover.table.count(4) == 2

    ring.revive(4, forgets=True)
    ring.rows(4, kept("d", "b"))
    ring.run(GONE_MS)

    assert ring.nodes[2].failover.table.rows(4) == [kept("d", "b")]


class _Dead:
    """An agent that is no more."""

    def handle(self, event, *, now_ms):
        return []

    def next_deadline_ms(self):
        return None

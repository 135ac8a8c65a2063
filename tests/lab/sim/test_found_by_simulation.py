"""Bugs that the simulator found, each the smallest world that shows it."""

from federator.protocol.filters import filter_key
from federator.protocol.messages.codec import encode
from federator.protocol.messages.control import MeshMembAnn, Solicit
from federator.protocol.types import BrokerId, Epoch
from lab.sim.convergence import core_of
from lab.sim.plan import LinkPlan, WorldPlan
from lab.sim.world import World


def world_of(pairs, filters, **link):
    links = tuple(LinkPlan(BrokerId(a), BrokerId(b), **link) for a, b in pairs)
    ids = tuple(sorted({id for pair in pairs for id in pair}))
    wanted = {BrokerId(id): frozenset(these) for id, these in filters.items()}
    return World(WorldPlan(ids, links, wanted), seed=1, trace_max=None)


def test_two_questions_for_one_dead_core_do_not_chase_each_other_round_a_ring():
    ring_behind_the_core = [(0, 1), (1, 2), (2, 3), (3, 4), (1, 4)]
    world = world_of(ring_behind_the_core, {0: {"t"}})
    world.run_until(2_000)
    world.stop_agent(BrokerId(0))
    world.run_until(4_000)
    world.trace.clear()

    for at_ms, asked in ((4_000, 3), (4_002, 8)):
        question = Solicit(BrokerId(1), BrokerId(0), Epoch(1_001), asked, hops_left=255)
        world.agenda.at(at_ms, world.arrive, BrokerId(2), "ctl", encode(question))
    world.run_until(5_000)

    heard = [event for _, _, event in world.trace if "Solicit" in str(event)]
    assert 2 <= len(heard) <= 2 * 2 * len(ring_behind_the_core)


def test_brokers_without_the_list_do_not_wait_for_each_other_because_of_an_old_cost():
    world = world_of([(0, 9), (9, 1), (1, 8), (8, 3), (3, 5), (5, 4), (4, 0)], {0: {"t"}})
    world.run_until(3_000)
    world.stop_agent(BrokerId(9))  # 8 goes on believing that 1 is near the core: nobody tells it,
    world.wires.loss = 1.0
    world.run_until(3_100)
    world.wires.loss = 0.0
    world.run_until(12_000)
    changed_ms = world.now_ms
    world.set_filters(BrokerId(0), frozenset({"t", "u"}))
    world.run_until(changed_ms + 12)
    world.wires.loss = 1.0  # and neither 8 nor 1 hears what changed.
    world.run_until(changed_ms + 18)
    world.wires.loss = 0.0

    world.run_until(changed_ms + 7_000)

    assert [core_of(world.agents[BrokerId(id)], "u") for id in (3, 8, 1)] == [0, 0, 0]


def test_broker_whose_clock_was_set_back_is_dialled_by_the_one_that_must_tell_it():
    one_sided = LinkPlan(BrokerId(2), BrokerId(8), configured=(BrokerId(2),), ids_known=False)
    other = LinkPlan(BrokerId(8), BrokerId(6))
    world = World(WorldPlan((BrokerId(2), BrokerId(6), BrokerId(8)), (one_sided, other)), seed=1)
    world.run_until(1_000)
    world.stop_agent(BrokerId(2))
    world.run_until(6_000)
    world.forget(BrokerId(2))
    world.start_agent(BrokerId(2))

    world.run_until(12_000)

    assert 8 in world.agents[BrokerId(2)].reach
    assert 2 in world.agents[BrokerId(8)].reach


def test_core_whose_clock_was_set_back_is_told_by_those_who_remember_it_from_afar():
    world = world_of([(4, 0), (0, 3), (3, 7)], {7: {"t"}})
    world.run_until(5_000)
    for id in (3, 7):
        world.stop_agent(BrokerId(id))
    world.run_until(10_000)
    world.forget(BrokerId(7))
    for id in (3, 7):
        world.start_agent(BrokerId(id))

    world.run_until(25_000)

    assert core_of(world.agents[BrokerId(4)], "t") == 7


def test_core_that_resigned_is_not_called_back_by_a_child_that_did_not_hear_so_yet():
    world = world_of([(0, 1), (1, 2)], {0: {"t"}})
    world.run_until(3_000)
    world.set_filters(BrokerId(0), frozenset())
    world.run_until(3_001)
    late = MeshMembAnn(BrokerId(1), BrokerId(0), Epoch(1_001), 1, ("t",), (), filter_key("t"), 1)

    world.arrive(BrokerId(0), "mesh_memb_ann", encode(late))
    world.run_until(3_100)

    assert [core_of(agent, "t") for agent in world.agents.values()] == [None] * 3

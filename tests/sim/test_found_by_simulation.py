"""Bugs that the simulator found, each the smallest world that shows it."""

from federator.protocol.codec import encode
from federator.protocol.messages import Solicit
from federator.protocol.types import BrokerId, Epoch
from federator.sim.world import LinkPlan, World, WorldPlan


def test_two_questions_for_one_dead_core_do_not_chase_each_other_round_a_ring():
    ring_behind_the_core = [(0, 1), (1, 2), (2, 3), (3, 4), (1, 4)]
    links = tuple(LinkPlan(BrokerId(a), BrokerId(b)) for a, b in ring_behind_the_core)
    plan = WorldPlan(tuple(map(BrokerId, range(5))), links, {BrokerId(0): frozenset({"t"})})
    world = World(plan, seed=1, trace_max=None)
    world.run_until(2_000)
    world.stop_agent(BrokerId(0))
    world.run_until(4_000)
    world.trace.clear()

    for at_ms, asked in ((4_000, 3), (4_002, 8)):
        question = encode(Solicit(BrokerId(1), BrokerId(0), Epoch(1), asked))
        world.agenda.at(at_ms, world.arrive, BrokerId(2), "ctl", question)
    world.run_until(5_000)

    heard = [event for _, _, event in world.trace if "Solicit" in str(event)]
    assert 2 <= len(heard) <= 2 * 2 * len(links)

"""Whatever crashes, gets lost, comes twice or late: each batch once, or told to be lost."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.collector.world import ModelAgent, World

EVENTS = ["flush", "head", "run", "crash", "disk", "cut", "lose disk"]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0, 0, 0.1, 0.5]),
    copies=st.sampled_from([1, 1, 2]),
    reorder_ms=st.sampled_from([10, 10, 200, 2_000]),
    kept=st.sampled_from([3, 30, 10**9]),
    replaced=st.booleans(),
)
def test_each_batch_lands_once_or_is_told_to_be_lost(
    seed, loss, copies, reorder_ms, kept, replaced
):
    tell(seed, loss=loss, copies=copies, reorder_ms=reorder_ms, kept=kept, replaced=replaced)


def tell(seed, *, loss, copies, reorder_ms, kept, replaced):
    rng = random.Random(seed)
    agents = [ModelAgent(broker, batches_max=kept) for broker in range(1, 1 + rng.randint(1, 3))]
    world = World(*agents, bytes_max=200_000, disk_ms=rng.choice([0, 50, 700]))

    def fate():
        return [rng.randint(10, reorder_ms) for _ in range(copies) if rng.random() >= loss]

    weights = [10, 8, 10, 1, 1, 1, 1 if replaced else 0]
    for event in rng.choices(EVENTS, weights, k=rng.randint(20, 120)):
        agent = rng.choice(agents)
        match event:
            case "flush":
                for _ in range(rng.randint(1, 15)):
                    agent.flush(rows=rng.randint(1, 3))
            case "head":
                world.heads()
            case "run":
                world.run(rng.choice([20, 200, 3_000]), fate=fate)
            case "crash":
                landed = rng.random() < 0.5
                if landed:  # the kill came between the rename and our hearing of it
                    world.finish_landing()
                world.start()
            case "disk":
                world.disk_works = not world.disk_works
            case "cut":
                world.collection.on_down(agent.broker)
                world.run(100, fate=fate)
                world.collection.on_up(agent.broker)
            case "lose disk":
                agent.lose_disk()
    world.settle()
    world.run(3_000)

    lost = world.check()
    for agent in agents:
        reasons = lost.get((agent.broker, agent.spool), {})
        assert set(reasons.values()) <= {"dropped by the spool"}
        assert all(number < agent.first for number in reasons)
    return world, lost


@pytest.mark.parametrize("wanted", ["dropped by the spool", "spool replaced"])
def test_the_stories_do_hold_what_they_are_told_for(wanted):
    found = set()
    for seed in range(30):
        _, lost = tell(seed, loss=0.1, copies=1, reorder_ms=50, kept=5, replaced=True)
        found |= {reason for spool in lost.values() for reason in spool.values()}

    assert wanted in found


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
    assert world.collection.no_room
    assert world.check() == {}

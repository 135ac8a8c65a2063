"""The world itself: deterministic, and its faults do what their names say."""

from federator.protocol.events import LocalBrokerDown, NeighbourDisconnected, Received
from federator.protocol.messages.control import Bye
from federator.protocol.types import BrokerId
from lab.sim.campaign import draw
from lab.sim.convergence import complaints
from lab.sim.faults import schedule
from lab.sim.story import Kind
from lab.sim.world import World
from tests.lab.sim.worlds import calm_world, members_of, parents_in_mesh

LINE = [(0, 1), (1, 2)]


def trace_of(seed):
    story = draw(Kind.ROUTES, seed, nodes=8)
    world = World(story.plan, seed=seed, trace_max=None)
    schedule(world, story.faults)
    for item in story.publications:
        world.agenda.at(item.at_ms, world.publish, item.node, item.topic, item.count)
    world.run_until(story.heal_ms)
    return list(world.trace), world.delivered


def test_same_seed_gives_the_same_trace():
    for seed in range(3):
        assert trace_of(seed) == trace_of(seed)


def test_other_seed_gives_another_trace():
    assert trace_of(1) != trace_of(2)


def heard_by(world, id, kind):
    return [e for _, who, e in world.trace if who == id and isinstance(e, kind)]


def byes_heard_by(world, id):
    return [e for e in heard_by(world, id, Received) if isinstance(e.message, Bye)]


def line_world():
    world = calm_world(LINE, {0: {"t"}, 2: {"t"}})
    world.run_until(3_000)
    assert not list(complaints(world, shortest=True))
    world.trace.clear()
    return world


def test_agent_that_dies_is_known_at_once_by_its_wills():
    world = line_world()

    world.stop_agent(BrokerId(1))
    world.run_until(3_010)

    assert len(byes_heard_by(world, 0)) == len(byes_heard_by(world, 2)) == 1


def test_broker_that_dies_resets_everybody_and_publishes_no_will():
    world = line_world()

    world.stop_broker(BrokerId(1))
    world.run_until(3_010)

    assert len(heard_by(world, 0, NeighbourDisconnected)) == 1
    assert len(heard_by(world, 1, LocalBrokerDown)) == 1
    assert not byes_heard_by(world, 1)


def test_silent_path_tells_nobody_until_the_hello_timeout():
    world = line_world()

    for path in world.paths_of(BrokerId(0), BrokerId(1), both=True):
        world.wires.silence(path)
    world.run_until(5_500)
    assert not heard_by(world, 0, NeighbourDisconnected)
    world.run_until(7_000)

    assert 1 not in world.agents[BrokerId(0)].reach


def test_paused_agent_reads_what_waited_for_it_in_order():
    world = line_world()
    agent = world.agents[BrokerId(1)]

    world.pause_agent(BrokerId(1))
    world.run_until(6_000)
    waiting = list(agent.inbox)
    assert waiting
    assert not heard_by(world, 1, Received)
    world.resume_agent(BrokerId(1), agent.life)

    assert heard_by(world, 1, Received)[: len(waiting)] == [
        e for e in waiting if isinstance(e, Received)
    ]


def test_mesh_heals_after_the_broker_between_was_away():
    world = line_world()

    world.stop_broker(BrokerId(1))
    world.run_until(10_000)
    world.start_broker(BrokerId(1))
    world.run_until(20_000)

    assert not list(complaints(world, shortest=True))


def test_garbage_on_every_control_topic_changes_nothing():
    world = line_world()
    before = parents_in_mesh(world, "t", 0)

    for kind in ("hello", "core_ann", "mesh_memb_ann", "ctl", "data"):
        for garbage in (b"", b"\x00", b"\xff" * 100, b"\x94\x03\x00\x00\x00"):
            world.arrive(BrokerId(1), kind, garbage)
    world.run_until(4_000)

    assert world.fired["undecodable"] == 20
    assert (members_of(world, "t", 0), parents_in_mesh(world, "t", 0)) == ({0, 1, 2}, before)

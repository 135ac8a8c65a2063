"""Narrow links with queues of any length, capacities told or learnt: what fits comes to rest.

Of demands that fit at 90 %, within 60 s nothing is lost any more, no flow moves twice in five
minutes, and all publications of a flow come in the order in which they were published.
``STEERED_SEEDS=20`` tries as many demands.
"""

import os

import pytest

from federator.planner.steering.backlogs import Backlogs
from federator.planner.steering.fitting import FILL_MAX
from federator.protocol.messages.steering import STEERING_VERSION, LinkLoad, Load
from tests.planner.steering.waiting import Waiting, drawn

SEEDS = range(int(os.environ.get("STEERED_SEEDS", "1")))
RELIEVED_S = 60
WATCHED_S = 360

QUEUES = [65_536, 1_048_576, 16_777_216]


@pytest.mark.parametrize("told", [True, False], ids=["told", "learnt"])
@pytest.mark.parametrize("queue_bytes", QUEUES, ids=["64 KiB", "1 MiB", "16 MiB"])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.few(2)
def test_what_fits_is_lost_no_more_after_a_minute_and_moves_once(seed, queue_bytes, told):
    world = Waiting(drawn(seed), queue_bytes=queue_bytes, told=told, seed=seed)

    world.run(WATCHED_S)

    assert world.moves
    assert world.lost_share(RELIEVED_S) == 0
    assert world.again() == {}
    assert max(world.loads().values()) <= FILL_MAX
    assert not sum(world.steps_back.values())
    assert world.unsettled == 0, "each flow that waited saw its former way empty"


def test_where_flows_of_a_jam_alone_find_no_way_flows_elsewhere_make_room():
    """Before, the jam lasted until a second link was as full."""
    world = Waiting(drawn(6), queue_bytes=QUEUES[0], told=False, seed=6)

    world.run(120)

    assert world.lost_share(RELIEVED_S) == 0
    assert world.again() == {}


@pytest.mark.full
@pytest.mark.parametrize("seed", [8, 16, 19])
def test_what_need_not_move_fills_no_link_while_some_agents_have_not_heard_of_the_move(seed):
    """Before, flows that changed places after the hold overfilled short queues for a moment."""
    world = Waiting(drawn(seed), queue_bytes=QUEUES[0], told=False, seed=seed)

    world.run(WATCHED_S)

    assert world.lost_share(RELIEVED_S) == 0


def load(at_ms, *queues, rate=2_000_000.0, epoch=1, broker=1):
    links = tuple(LinkLoad(to, 1, rate, queue) for to, queue in enumerate(queues, broker + 1))
    return Load(STEERING_VERSION, "fed", broker, epoch, at_ms, links, ())


def draining(*loads):
    backlogs = Backlogs()
    for each in loads:
        backlogs.take(each)
    return backlogs.draining([loads[-1]])


def test_what_leaves_queues_beyond_what_enters_is_told_of_all_links_together():
    found = draining(
        load(0, 700_000, 500_000), load(2_000, 600_000, 700_000), load(4_000, 500_000, 600_000)
    )

    assert found == pytest.approx(400_000 + 400_000)


def test_a_queue_that_grows_or_is_short_drains_nothing():
    assert draining(load(0, 700_000), load(2_000, 900_000)) == 0
    assert draining(load(0, 100_000), load(2_000, 0)) == 0


def test_an_agent_that_begins_again_has_no_queue_of_before():
    assert draining(load(0, 700_000), load(2_000, 0, epoch=2)) == 0

"""docs/protocol.md 7.5: what carries a core's filters when the core is gone."""

import itertools
import random

import pytest

from federator.protocol.events import Received
from federator.protocol.messages.control import CoreAnn
from federator.protocol.parameters import Parameters
from federator.protocol.routing.flooding import PRICE, Flooding
from federator.protocol.types import UNREACHABLE
from tests.protocol.network import PARAMETERS, grid_links, network_with

TIMEOUT_MS = PARAMETERS.solicit_timeout_ms
DELAY_MS = 5
NEWS_MS = 60
"""Until all of a grid of nine know that a broker is gone: at most so many links, one by one."""


def kill(network, node):
    for a, b in network.links:
        if node in (a, b):
            network.cut(a, b)


def hops(network, node, filter_="f"):
    found = network.routes.get((node, filter_))
    return () if found is None else found.next_hops


def reached(network, origin):
    """Who gets what is published at ``origin`` now: each carries the first copy on."""
    seen, frontier = {origin}, [(None, origin)]
    while frontier:
        sender, here = frontier.pop(0)
        for hop in hops(network, here):
            if hop != sender and hop not in seen:
                seen.add(hop)
                frontier.append((here, hop))
    return seen


GRIDS = [
    ((4, 5, 6, 7, 8), 1),
    ((4, 6, 8), 2),
    ((1, 6, 8), 1),
    ((0, 8), 2),
    ((0, 2, 6, 8), 2),
    ((1, 2, 3, 8), 3),
]


@pytest.mark.parametrize(("subscribers", "redundancy"), GRIDS)
def test_publications_from_anywhere_reach_all_who_are_left_until_the_next_mesh_stands(
    subscribers, redundancy
):
    parameters = Parameters(redundancy=redundancy)
    network = network_with(grid_links(3, 3), *subscribers, parameters=parameters)
    core, *left = subscribers

    kill(network, core)
    network.run(NEWS_MS)

    for _ in range(4 * TIMEOUT_MS // DELAY_MS):
        for origin in set(range(9)) - {core}:
            assert reached(network, origin) >= set(left), (origin, network.now_ms)
        network.run(DELAY_MS)


@pytest.mark.parametrize("seed", range(20))
def test_so_they_do_in_any_graph_that_the_core_does_not_hold_together(seed):
    rng = random.Random(seed)
    ids = range(10)
    ring = [(i, (i + 1) % 10) for i in ids]
    chords = [pair for pair in itertools.combinations(ids, 2) if rng.random() < 0.1]
    links = sorted({(min(pair), max(pair)) for pair in (*ring, *chords)})
    core, *left = sorted(rng.sample(ids, rng.randint(2, 6)))
    network = network_with(links, core, *left)

    kill(network, core)
    network.run(2 * NEWS_MS)

    for _ in range(4 * TIMEOUT_MS // DELAY_MS):
        for origin in set(ids) - {core}:
            assert reached(network, origin) >= set(left), (origin, network.now_ms)
        network.run(DELAY_MS)


def test_somebody_who_takes_a_core_back_again_and_again_has_it_flooded_for_a_fifth_of_the_time():
    network = network_with([(0, 1), (1, 2), (2, 3)], 0)
    adverse = network.nodes[2]
    flooded_ms = 0
    seq = 100

    for _ in range(2_000):  # a minute, with a step of 30 ms
        seq += 1
        announcement = CoreAnn(
            sender=1, core=0, priority=0, epoch=1_000, seq=seq, cost=1, in_mesh=True,
            added=(), removed=(), digest=adverse.announcements.routes[0].announced.filters.digest,
            count=1, path=(1, 0),
        )  # fmt: skip
        network.at(network.now_ms, 2, Received(announcement))
        network.run(1)
        gone = CoreAnn(
            sender=1, core=0, priority=0, epoch=1_000, seq=seq, cost=UNREACHABLE, in_mesh=True,
            added=(), removed=(), digest=0, count=0,
        )  # fmt: skip
        network.at(network.now_ms, 2, Received(gone))
        network.run(29)
        flooded_ms += 29 * (hops(network, 2) == (1, 3))

    elapsed_ms = 2_000 * 30
    assert 0 < flooded_ms <= elapsed_ms / PRICE + 2 * 2 * TIMEOUT_MS


def test_two_deaths_in_a_row_are_both_flooded_for_and_a_third_is_not():
    flooding = Flooding(PARAMETERS)
    now_ms = 0

    for flooded in (True, True, False):
        flooding.on_core_lost(7, now_ms=now_ms)
        assert flooding.is_for("f", 7) == flooded
        now_ms += 2 * TIMEOUT_MS
        flooding.pop_due(now_ms)
        assert not flooding.is_for("f", 7)

    now_ms += PRICE * 2 * TIMEOUT_MS
    flooding.on_core_lost(7, now_ms=now_ms)
    assert flooding.is_for("f", 7)

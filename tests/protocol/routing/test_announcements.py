"""docs/protocol.md 6: floods, costs, feasibility, repair."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.protocol.messages.control import CoreAnn, Solicit
from federator.protocol.parameters import Parameters
from tests.protocol.network import Network, grid_links

RING = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]


def settled(links, core, *, delay_ms=None, parameters=None):
    network = Network(links, delay_ms=delay_ms, parameters=parameters or Parameters())
    network.run(1_000)
    network.subscribe(core, "f")
    network.run(500)
    return network


def route(network, node, core):
    return network.nodes[node].announcements.routes[core]


@pytest.mark.parametrize(("side", "publications"), [(3, 16), (4, 33), (5, 56), (8, 161)])
def test_a_number_costs_2l_minus_n_plus_1_with_equal_delays(side, publications):
    network = settled(grid_links(side, side), 0)
    network.run(Parameters().core_ann_interval_ms)

    assert network.announcements(0, 2) == publications


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 80), min_size=12, max_size=12))
def test_a_number_never_costs_more_than_3l(delays):
    links = list(grid_links(3, 3))
    network = settled(links, 2, delay_ms=dict(zip(links, delays, strict=True)))
    network.run(3 * Parameters().core_ann_interval_ms)

    assert all(network.announcements(2, seq) <= 3 * len(links) for seq in (1, 2, 3))


def test_refresh_changes_no_route():
    network = settled(grid_links(3, 3), 2)
    network.subscribe(7, "f")
    network.run(Parameters().core_ann_interval_ms)
    before = dict(network.routes)
    network.routes.clear()

    network.run(2 * Parameters().core_ann_interval_ms)

    assert network.announcements(2, 3) == 16
    assert network.routes == {}, "nothing was set anew"
    assert before[7, "f"].next_hops == (4, 8)


def test_newer_number_that_comes_the_long_way_waits_for_the_short_way():
    delay_ms = {(0, 1): 20, (0, 4): 1, (4, 3): 1, (3, 2): 1, (1, 2): 1}
    network = settled(RING, 0, delay_ms=delay_ms)
    network.run(Parameters().core_ann_interval_ms)

    sent = [
        m.cost for _, s, _, m in network.sent if s == 2 and isinstance(m, CoreAnn) and m.seq == 2
    ]

    assert route(network, 2, 0).cost == 2
    assert sent == [2], "2 heard cost 3 by way of 3 first, and held it"


@pytest.mark.parametrize("late", [(0, 1), (1, 3)], ids=["to the relay", "from the relay"])
@pytest.mark.parametrize("late_ms", [400, 1_500, 3_500])
def test_ways_of_equal_cost_do_not_change_places_while_announcements_of_one_come_late(
    late, late_ms
):
    diamond = [(0, 1), (1, 3), (0, 2), (2, 3)]
    network = settled(diamond, 0)
    network.subscribe(3, "g")  # it has a core of its own, whose announcements go the other way
    network.run(3 * Parameters().core_ann_interval_ms)
    seen = set()

    for turn in range(600):  # half a minute
        # The queue of one direction grows, slowly enough for hellos to keep the link.
        network.delay_ms[late] = min(late_ms, 400 + 10 * turn)
        network.run(50)
        seen.add((route(network, 3, 0).parents, route(network, 1, 0).parents))

    assert seen == {((1, 2), (0,))}


def test_solicit_without_hops_left_is_not_passed_on():
    network = settled([(0, 1), (1, 2), (2, 3)], 0)
    announcements = network.nodes[1].announcements
    question = Solicit(2, 0, *route(network, 1, 0).number, 1)

    passed_on = announcements.on_solicit(question, now_ms=network.now_ms)
    ended = announcements.on_solicit(replace_struct(question, hops_left=0), now_ms=50_000)

    assert [step.message.hops_left for step in passed_on] == [0]
    assert ended == []


def test_silent_core_is_forgotten_after_its_lifetime():
    network = settled([(0, 1)], 0)
    announcements = network.nodes[1].announcements
    last_ms = network.nodes[0].announcements.own.announced_at_ms + 5

    steps = announcements.on_deadline(now_ms=last_ms + announcements.lifetime_ms)

    assert route(network, 1, 0).forgotten
    assert steps


def test_stale_and_repeated_numbers_teach_nothing():
    network = settled([(0, 1), (1, 2)], 0)
    ann = CoreAnn(0, 0, 0, 1_000, 1, 0, True, (), (), route(network, 1, 0).newest.digest, 1)
    announcements = network.nodes[1].announcements

    assert announcements.on_announcement(ann, now_ms=network.now_ms) == []
    old = replace_struct(ann, epoch=999, seq=50)
    assert announcements.on_announcement(old, now_ms=network.now_ms) == []
    assert route(network, 1, 0).number == (1_000, 1)


@pytest.mark.parametrize("count", [1, 100, 10_000])
def test_announcing_costs_the_same_with_any_number_of_filters(count):
    network = Network(grid_links(2, 2))
    network.run(1_000)
    network.subscribe(0, *(f"f/{i}" for i in range(count)))
    network.run(1_000)
    before = len(network.sent)

    network.run(2 * Parameters().core_ann_interval_ms)

    kinds = [type(m).__name__ for *_, m in network.sent[before:]]
    assert kinds.count("CoreAnn") == 2 * (2 * 4 - 3)
    assert set(kinds) == {"Hello", "CoreAnn"}
    assert len(network.nodes[3].meshes.states) == count


def test_lost_change_is_made_good_by_asking_for_the_list():
    network = settled([(0, 1), (1, 2)], 0)
    network.nodes[1].announcements.routes[0].announced.filters.apply(removed=("f",))

    network.run(Parameters().core_ann_interval_ms + 100)

    assert "f" in network.nodes[1].announcements.routes[0].announced.filters


def replace_struct(message, **changes):
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    return type(message)(**{**fields, **changes})

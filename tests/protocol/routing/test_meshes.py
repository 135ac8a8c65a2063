"""docs/protocol.md 7: election, membership, routes, hand-over."""

import gc
import sys

import pytest

from federator.protocol.effects import FilterRoute, Notice
from federator.protocol.events import LeaveRequested, LocalBrokerDown, Received
from federator.protocol.messages.control import Bye, CoreAnn, MeshMembAnn, Solicit
from federator.protocol.node import Identity, Node
from federator.protocol.signals import LinkDown, OwnIdHeard
from tests.protocol.network import PARAMETERS, Network, grid_links, network_with

LINE = [(0, 1), (1, 2), (2, 3)]
GONE = FilterRoute(local=False, wanted=False, next_hops=())


def state(network, node, filter_="f"):
    return network.nodes[node].meshes.states.get(filter_)


def route(network, node, filter_="f"):
    found = state(network, node, filter_)
    return found.route if found is not None else GONE


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="it looks into all dictionaries there")
def test_the_collector_of_garbage_looks_at_nothing_that_a_node_keeps_for_each_filter():
    network = network_with(LINE, 3, 1)

    for i in range(4):
        states = network.nodes[i].meshes.states
        assert not any(map(gc.is_tracked, (states, states["f"], states["f"].route)))


def test_priority_comes_before_the_id():
    network = Network(LINE)
    network.nodes[3] = Node(Identity(3, 1_003, "b3", priority=-1), PARAMETERS)
    network.run(1_000)
    network.subscribe(1, "f")
    network.subscribe(3, "f")
    network.run(500)

    assert [state(network, i).core for i in range(4)] == [3, 3, 3, 3]


def test_link_that_flaps_at_one_end_only_loses_no_child():
    network = network_with(LINE, 0, 3)
    links = network.nodes[1].links
    for step in links.forget_hello(links.neighbours[2], "silent"):
        if isinstance(step, LinkDown):
            for dropped in network.nodes[1].meshes.on_link_down(2):
                network.nodes[1].meshes.on_child_filters(
                    dropped.core, dropped.filters, lost=True, now_ms=network.now_ms
                )
            network.nodes[1].announcements.on_link_down(2, now_ms=network.now_ms)

    network.run(PARAMETERS.hello_interval_ms + 50)

    assert network.nodes[1].meshes.children_of(0, "f") == [2]


def test_child_that_goes_silent_is_forgotten_after_a_lifetime():
    network = network_with([(0, 1)], 0, 1)
    meshes = network.nodes[0].meshes

    meshes.on_deadline(now_ms=network.now_ms + network.nodes[0].announcements.lifetime_ms)

    assert meshes.children == {}


def test_every_member_confirms_once_to_each_parent_per_announcement():
    network = network_with(grid_links(3, 3), 2, 7)
    seq = network.nodes[2].announcements.own.seq + 1

    network.run(PARAMETERS.core_ann_interval_ms)

    reports = [(s, r) for _, s, r, m in network.sent if isinstance(m, MeshMembAnn) and m.seq == seq]
    assert sorted(reports) == [(1, 2), (4, 1), (4, 5), (5, 2), (7, 4), (7, 8), (8, 5)]


def test_membership_is_repaired_by_asking_for_the_list():
    network = network_with([(0, 1)], 0, 1)
    network.nodes[0].meshes.children[0][1].filters.apply(removed=("f",))

    network.run(PARAMETERS.core_ann_interval_ms + 100)

    assert "f" in network.nodes[0].meshes.children[0][1].filters


def reaches(network, origin, target):
    """Whether a publication on ``f`` at ``origin`` comes to ``target``, as routes are now."""
    seen, ahead = {origin}, [origin]
    while ahead:
        hops = set(route(network, ahead.pop()).next_hops) - seen
        seen |= hops
        ahead += hops
    return target in seen


def test_a_new_core_is_not_left_alone_when_everybody_stands_still_during_the_hand_over():
    network = network_with(LINE, 3)
    network.subscribe(0, "f")
    network.run(0)

    for node in range(4):
        network.pause(node, PARAMETERS.handover_ms + 500)

    for _ in range(6 * PARAMETERS.handover_ms):
        network.run(1)
        assert route(network, 0).wanted
        assert reaches(network, 0, 3)
    assert state(network, 0).previous is None


def test_who_is_slow_to_leave_the_old_mesh_misses_nothing():
    network = network_with(LINE, 1, 3)
    network.unsubscribe(1, "f")
    network.run(2 * PARAMETERS.handover_ms)
    assert state(network, 1).core == 1
    network.subscribe(0, "f")
    network.run(0)

    network.pause(3, 2 * PARAMETERS.handover_ms)

    for _ in range(6 * PARAMETERS.handover_ms):
        network.run(1)
        assert reaches(network, 0, 3)
    assert [state(network, i).child_cores for i in range(4)] == [(0,), (0,), (0,), ()]


def test_leaving_agent_tells_its_neighbours_and_then_does_nothing():
    network = network_with(LINE, 0, 3)

    before = len(network.sent)
    network.at(network.now_ms, 2, LeaveRequested())
    network.run(0)

    said = [(r, type(m)) for _, s, r, m in network.sent[before:] if s == 2]
    assert said == [(1, Bye), (3, Bye)]
    assert network.nodes[2].handle(LocalBrokerDown(), now_ms=network.now_ms) == []


def test_who_follows_another_core_gives_nothing_up():
    """Whoever hears of the old core only must not take it for the end of all interest."""
    network = network_with(LINE, 3)
    network.sent.clear()
    network.subscribe(0, "f")
    network.run(3 * PARAMETERS.handover_ms)
    taken_back = [m for *_, m in network.sent if isinstance(m, CoreAnn | MeshMembAnn) and m.removed]
    assert {(type(m), m.core) for m in taken_back} >= {(CoreAnn, 3)}
    left = [m for *_, m in network.sent if isinstance(m, MeshMembAnn) and not m.count]
    assert not any(m.gave_up for m in [*taken_back, *left])

    network.sent.clear()
    network.unsubscribe(0, "f")
    network.unsubscribe(3, "f")
    network.run(3 * PARAMETERS.handover_ms)
    assert any(m.gave_up for *_, m in network.sent if isinstance(m, CoreAnn) and m.removed)


def test_membership_for_an_epoch_of_ours_that_is_over_is_ignored():
    network = network_with([(0, 1)], 0)
    stale = MeshMembAnn(1, 0, 999, 1, ("f",), (), 1, 1)

    assert network.nodes[0].meshes.on_membership(stale, now_ms=network.now_ms) == []
    assert network.nodes[0].meshes.children == {}


def test_nobody_moves_our_epoch_by_a_solicit_without_our_word():
    network = network_with([(0, 1)], 0)
    node = network.nodes[0]
    other = CoreAnn(1, 1, 0, 9_000, 1, 1, True, (), (), 0, 0)
    too_old = CoreAnn(1, 0, 0, 1_500, 1, 1, True, (), (), 0, 0)

    for shown in (None, other, too_old):
        for epoch in (2_000, 3_000, 4_000, 5_000):
            network.at(network.now_ms, 0, Received(Solicit(1, 0, epoch, 1, 9, shown)))
    network.run(1_000)

    names = [n.name for _, i, n in network.notices if i == 0]
    assert node.links.epoch == 1_000
    assert names.count("epoch.unproven") == 1
    assert not {"epoch.renewed", "id.conflict"} & set(names)


def test_a_hello_without_our_word_moves_our_epoch_once_an_hour_and_never_makes_us_withdraw():
    node = network_with([(0, 1)], 0).nodes[0]

    done = [
        node._on_own_id(OwnIdHeard(epoch, 1, proven=False, greeted=True), now_ms)
        for now_ms in range(0, 7_200_000, 1_000)
        for epoch in (node.links.epoch + 1_000,)
    ]

    names = [step.name for steps in done for step in steps if isinstance(step, Notice)]
    assert names.count("epoch.renewed") == 2
    assert "id.conflict" not in names


def test_two_agents_with_one_id_stop_fighting_and_one_says_so():
    network = network_with([(0, 1)], 0)
    node = network.nodes[0]
    for epoch in (2_000, 3_000, 4_000, 5_000):
        forged = CoreAnn(1, 0, 0, epoch, 1, 1, True, (), (), 0, 0)
        network.now_ms += 10
        for effect in node.handle(Received(forged), now_ms=network.now_ms):
            network._perform(0, effect)

    names = [n.name for _, i, n in network.notices if i == 0]
    assert names.count("epoch.renewed") == 3
    assert names.count("id.conflict") == 1
    assert node.links.listening is False
    network.at(node.id_conflict_until_ms, 0, LocalBrokerDown())
    network.run(31_000)
    assert node.id_conflict_until_ms is None


def test_filters_of_which_the_same_holds_share_a_state_until_one_changes():
    network = network_with(LINE, 3)
    for filter_ in ("g", "h"):
        network.subscribe(3, filter_)
    network.run(2 * PARAMETERS.core_ann_interval_ms)
    shared = state(network, 1, "g") is state(network, 1, "h")

    network.unsubscribe(3, "h")
    network.run(2 * PARAMETERS.core_ann_interval_ms)

    assert shared
    assert state(network, 1, "g").core == 3
    assert state(network, 1, "h") is None

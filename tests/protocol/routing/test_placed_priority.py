from federator.protocol.events import PriorityChanged
from federator.protocol.routing.placed_priority import PlacedPriority
from tests.protocol.network import PARAMETERS, Network

LINE = [(0, 1), (1, 2), (2, 3)]
HOLD_MS = 1_000


def test_the_first_word_is_followed_at_once_and_the_next_after_the_hold():
    follower = PlacedPriority(0, hold_ms=HOLD_MS)

    assert follower.on_read(None, now_ms=0) is None
    assert follower.on_read(-3, now_ms=10) == -3
    assert follower.on_read(-5, now_ms=1_009) is None
    assert follower.on_read(-5, now_ms=1_010) == -5
    assert follower.on_read(-5, now_ms=9_000) is None


def test_without_a_valid_word_the_operators_priority_holds_again():
    follower = PlacedPriority(7, hold_ms=HOLD_MS)
    follower.on_read(-3, now_ms=0)

    assert follower.on_read(None, now_ms=HOLD_MS) == 7


def test_a_word_that_keeps_changing_moves_cores_once_per_hold():
    follower = PlacedPriority(0, hold_ms=HOLD_MS)

    changes = [follower.on_read(-1 - t % 2, now_ms=t) for t in range(0, 10_001, 7)]

    assert 1 < sum(change is not None for change in changes) <= 11


def settled(*subscribers):
    network = Network(LINE)
    for node in subscribers:
        network.subscribe(node, "f")
    network.run(3 * PARAMETERS.handover_ms)  # nothing is due any more that would settle cores
    return network


def cores(network):
    return [network.nodes[i].meshes.states["f"].core for i in range(4)]


def prefer(network, node, priority):
    network.at(network.now_ms, node, PriorityChanged(priority))
    network.run(200)


def test_a_member_that_is_preferred_becomes_the_core_without_waiting_for_an_interval():
    network = settled(1, 3)
    assert cores(network) == [1, 1, 1, 1]

    prefer(network, 3, -1)

    assert cores(network) == [3, 3, 3, 3]


def test_a_core_that_is_preferred_less_hands_over_without_waiting_for_an_interval():
    network = settled(1, 3)

    prefer(network, 1, 5)

    assert cores(network) == [3, 3, 3, 3]


def test_a_priority_back_at_its_old_value_brings_the_old_core_back():
    network = settled(1, 3)
    prefer(network, 3, -1)

    prefer(network, 3, 0)

    assert cores(network) == [1, 1, 1, 1]


def test_who_wants_nothing_is_no_core_however_preferred():
    network = settled(1, 3)

    prefer(network, 2, -9)

    assert cores(network) == [1, 1, 1, 1]


def test_the_same_priority_again_says_nothing_to_anybody():
    network = settled(1, 3)
    said = len(network.sent)

    prefer(network, 1, 0)

    assert [m for *_, m in network.sent[said:] if type(m).__name__ == "CoreAnn"] == []

"""Which flows an origin moves, by hand: two ways from 1 to 4, by 2, which is cheap, and by 3."""

import pytest

from federator.protocol.messages.steering import FlowLoad, parents_of
from lab.local_steering.board import Network
from lab.local_steering.chooser import HOLD_MS, Chooser
from lab.local_steering.words import PricedLink

WIDE = {(1, 2): 1, (2, 4): 1, (1, 3): 2, (3, 4): 2}


def network(loads=(), price=1.0, links=WIDE):
    told = dict(loads)
    return Network(
        {
            (a, b): PricedLink(
                b, cost, told.get((a, b), 0.0), 100.0, price if (a, b) in told else 0
            )
            for (a, b), cost in links.items()
        }
    )


def chooser(*rates, destinations=(4,)):
    made = Chooser(1)
    made.take(
        [FlowLoad((f"f{k}",), destinations, rate, 0.0, 1.0) for k, rate in enumerate(rates)], 0
    )
    return made


def test_a_flow_leaves_a_link_whose_price_makes_the_other_way_cheaper():
    ours = chooser(40.0)

    move = ours.choose(network({(1, 2): 120.0}, price=4.0), 0)

    assert parents_of(move.tree) == {4: 3, 3: 1}
    assert move.shift.left == ((1, 2), (2, 4))
    assert move.shift.joined == ((1, 3), (3, 4))
    assert ours.trees == (move.tree,)


@pytest.mark.parametrize(
    ("loads", "price"),
    [
        ({}, 4.0),  # nothing is priced
        ({(1, 2): 120.0}, 0.5),  # the other way is dearer still
        ({(1, 2): 120.0, (1, 3): 120.0}, 4.0),  # it would only be full elsewhere
    ],
)
def test_a_flow_stays_where_moving_is_no_gain(loads, price):
    assert chooser(40.0).choose(network(loads, price), 0) is None


def test_one_flow_moves_in_a_turn_the_one_that_relieves_most_for_what_it_costs():
    move = chooser(10.0, 30.0, 20.0).choose(network({(1, 2): 120.0}, price=4.0), 0)

    assert move.filters == ("f1",)


def test_a_flow_that_moved_stays_unless_its_link_is_over_its_capacity():
    ours = chooser(40.0)
    ours.choose(network({(1, 2): 120.0}, price=4.0), 0)

    assert ours.choose(network({(1, 3): 98.0}, price=8.0), HOLD_MS - 1) is None
    assert ours.choose(network({(1, 3): 101.0}, price=8.0), HOLD_MS - 1) is not None


def test_a_tree_whose_link_is_gone_is_given_up():
    ours = chooser(40.0)
    ours.choose(network({(1, 2): 120.0}, price=4.0), 0)
    cut = {ends: cost for ends, cost in WIDE.items() if ends != (3, 4)}

    assert [move.tree for move in ours.drop_broken(network(links=cut))] == [None]
    assert ours.trees == ()


def test_a_flow_returns_when_its_ordinary_way_has_long_been_free():
    ours = chooser(40.0)
    ours.choose(network({(1, 2): 120.0}, price=4.0), 0)

    moves = [ours.choose(network(), at_s * 1_000) for at_s in range(1, 400)]

    assert [move.tree for move in moves if move is not None] == [None]
    assert moves.index(next(filter(None, moves))) * 1_000 >= HOLD_MS - 2_000

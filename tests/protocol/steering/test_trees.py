"""Trees as one of their brokers sees them, by hand and by chance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.forwarding.trees import branch_of
from federator.protocol.messages.destinations import TREE_NUMBERS
from federator.protocol.messages.steering import Tree, parents_of, tree_number, tree_of
from federator.protocol.types import BrokerId

FLOW = ("a/#", "a/b")
ONE, TWO, THREE, FOUR, FIVE = map(BrokerId, range(1, 6))
TREE = tree_of(ONE, FLOW, {TWO: ONE, THREE: TWO, FOUR: TWO, FIVE: ONE})


@st.composite
def parents(draw):
    """Of each broker but 0."""
    count = draw(st.integers(2, 12))
    return {child: draw(st.integers(0, child - 1)) for child in range(1, count)}


@given(parents())
def test_each_broker_of_a_tree_knows_its_parent_and_who_is_below_which_child(parents):
    tree = tree_of(0, FLOW, parents)

    assert parents_of(tree) == parents
    for broker in (0, *parents):
        branch = branch_of(tree, broker)
        assert branch.parent == parents.get(broker)
        assert set(branch.below) == {child for child, above in parents.items() if above == broker}
        for child, brokers in branch.below.items():
            for each in brokers:
                at = each
                while at != child:
                    at = parents[at]
        assert len(frozenset().union(*branch.below.values())) == sum(
            map(len, branch.below.values())
        )
    assert 0 <= tree_number(tree) < TREE_NUMBERS


@pytest.mark.parametrize(
    ("edges", "why"),
    [
        (((1, 2), (3, 2)), "two parents"),
        (((1, 2), (2, 1)), "the origin has one"),
        (((1, 2), (3, 4)), "not below the origin"),
        (((1, 2), (3, 4), (4, 3)), "not below the origin"),
    ],
)
def test_what_is_no_tree_is_none(edges, why):
    with pytest.raises(ValueError, match=why):
        parents_of(Tree(1, FLOW, edges))


def test_who_is_not_in_a_tree_has_no_branch():
    with pytest.raises(ValueError, match="broker 9 is not in it"):
        branch_of(TREE, 9)


def test_the_number_is_of_the_content_alone():
    assert tree_number(TREE) == tree_number(tree_of(1, reversed(FLOW), {5: 1, 4: 2, 3: 2, 2: 1}))
    assert tree_number(TREE) != tree_number(tree_of(1, FLOW, {2: 1, 3: 2, 4: 2, 5: 2}))

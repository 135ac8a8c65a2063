"""Trees as one of their brokers sees them, by hand and by chance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.forwarding.trees import TORN_MS, Steps, TreeTable, branch_of
from federator.protocol.messages.destinations import TREE_NUMBERS, tree_key
from federator.protocol.messages.steering import Tree, parents_of, tree_number, tree_of
from federator.protocol.types import BrokerId

FLOW = ("a/#", "a/b")
ONE, TWO, THREE, FOUR, FIVE = map(BrokerId, range(1, 6))
TREE = tree_of(ONE, FLOW, {TWO: ONE, THREE: TWO, FOUR: TWO, FIVE: ONE})
KEY = tree_key(tree_number(TREE))


@st.composite
def parents(draw):
    """Of each broker but 0."""
    count = draw(st.integers(2, 12))
    return {child: draw(st.integers(0, child - 1)) for child in range(1, count)}


def table(broker, *, reachable=range(9)):
    trees = TreeTable()
    trees.replace([TREE], broker)
    for neighbour in reachable:
        trees.reach(neighbour, True)
    return trees


def steps(trees, *destinations, origin=None):
    return trees.steps(KEY, frozenset(destinations), origin=origin)


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


def test_the_origin_sends_by_the_tree_and_the_rest_the_ordinary_way():
    trees = table(1)

    assert trees.of_flow(["a/b", "a/#"]) == KEY
    assert trees.of_flow(["a/#"]) == b""
    assert steps(trees, 3, 4, 7) == Steps((2,), frozenset({7}))
    assert steps(trees, 3, 5) == Steps((2, 5), frozenset())
    assert steps(trees, 7) == Steps((), frozenset({7}))


def test_a_relay_passes_on_to_whom_the_frame_is_for_and_leaves_others_alone():
    assert steps(table(2), 3, 5, 7, origin=1) == Steps((3,), frozenset())
    assert steps(table(4), 3, 4, origin=1) == Steps((), frozenset())


def test_a_child_that_cannot_be_reached_leaves_those_behind_it_to_the_ordinary_way():
    assert steps(table(2, reachable=[1, 4]), 3, 4, origin=1) == Steps((4,), frozenset({3}))
    assert steps(table(1, reachable=[5]), 3, 5) == Steps((5,), frozenset({3}))


def test_who_does_not_know_the_tree_leaves_everybody_to_the_ordinary_way():
    assert steps(TreeTable(), 3, 5, origin=1) == Steps((), frozenset({3, 5}))
    assert steps(table(2), 3, 5, origin=9) == Steps((), frozenset({3, 5}))


def test_a_torn_branch_is_tried_again_after_a_while():
    trees = table(1)

    assert trees.tear(KEY, 2, 0)
    assert not trees.tear(KEY, 2, 5)
    assert steps(trees, 3, 5) == Steps((5,), frozenset({3}))
    assert trees.due_ms == TORN_MS + 5
    assert not trees.mend(TORN_MS)
    assert trees.mend(TORN_MS + 5)
    assert steps(trees, 3, 5) == Steps((2, 5), frozenset())


@pytest.mark.parametrize(("key", "child"), [(KEY, 3), (KEY, 9), (tree_key(7), 2)])
def test_only_a_child_that_can_be_reached_tears_and_only_its_own_branch(key, child):
    assert not table(1).tear(key, child, 0)
    assert not table(1, reachable=[]).tear(KEY, 2, 0)


def test_a_tear_stays_while_the_tree_stays():
    trees = table(1)
    trees.tear(KEY, 2, 0)

    assert not trees.replace([TREE], 1)
    assert trees.replace([TREE, tree_of(1, ["x"], {2: 1})], 1)
    assert trees.due_ms is not None
    assert trees.replace([], 1)
    assert trees.due_ms is None

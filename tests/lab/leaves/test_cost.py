"""When a leaf's cost is called flat."""

import pytest

from lab.leaves.cost import Cost, Outcome, Size


def cost(*, memory=70_000_000, quiet=250.0, changing=300.0):
    return Cost(Size(10, 100), 100, 100, memory, quiet, changing, 80_000_000, 0.1, 0.05)


@pytest.mark.parametrize(
    ("last", "held"),
    [
        (cost(), True),
        (cost(memory=75_000_000), True),
        (cost(memory=75_000_001), False),
        (cost(memory=64_000_000), False),
        (cost(quiet=299.0), True),
        (cost(quiet=301.0), False),
        (cost(quiet=200.0), False),
        (cost(changing=361.0), False),
        (cost(changing=100.0), True),
    ],
)
def test_a_leaf_pays_about_as_much_beside_a_large_world(last, held):
    assert Outcome([cost(), last]).held is held

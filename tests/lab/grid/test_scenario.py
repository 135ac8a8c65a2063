"""A scenario that cannot be run says so when it is made."""

from dataclasses import replace

import pytest

from lab.grid.scenario import SPOHN2021
from lab.grid.topology import Grid


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"subscribers": (2, 9)}, "broker 9 is not in the grid, which has 0 to 8"),
        ({"publishers": (-1,)}, "broker -1 is not in the grid"),
        ({"subscribers": ()}, "at least one"),
        ({"subscribers": (2, 2)}, "each once"),
        ({"payload_bytes": 23}, "at least 24"),
        ({"gap_ms": (100, 50)}, "least and most"),
        ({"gap_ms": (-1, 50)}, "not negative"),
        ({"runs": (0,)}, "publications"),
        ({"grid": Grid(21, 20)}, "at most 400"),
        ({"qos": 3}, "QoS"),
    ],
)
def test_an_impossible_scenario_is_refused(change, complaint):
    with pytest.raises(ValueError, match=complaint):
        replace(SPOHN2021, **change)


def test_a_grid_without_brokers_is_refused():
    with pytest.raises(ValueError, match="at least 1 x 1"):
        Grid(0, 3)

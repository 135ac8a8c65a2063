"""Long measurements in small."""

import pytest

from federator.planner.flow.watch import Watch
from lab.papers.flow import studies
from lab.papers.pricing.world import Conditions


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_power_that_times_grow_with_is_found(power):
    amounts = [studies.work(n, n // 10) for n in (1_000, 2_000, 4_000)]

    seconds = [3e-6 * amount**power for amount in amounts]

    assert studies.exponent(amounts, seconds) == pytest.approx(power)


@pytest.mark.full
def test_a_settled_world_is_compared_with_the_centralised_answer_to_the_same_instance():
    settled = studies.settle(2, Conditions(rounds=20))

    assert settled is not None
    assert settled.unmet == 0
    assert settled.excess == settled.cost / settled.central - 1
    assert -0.05 < settled.excess < 0.5
    assert settled.late_moves > 0
    assert settled.oscillates


@pytest.mark.parametrize(
    ("moves", "overload", "oscillates"), [(0, 0.0, False), (1, 0.0, True), (0, 0.01, True)]
)
def test_a_world_oscillates_if_anybody_moves_or_a_link_is_too_full(moves, overload, oscillates):
    settled = studies.Settled(
        seed=1,
        central=10.0,
        cost=10.2,
        unmet=0,
        overload=0.0,
        late_moves=moves,
        late_swing=0.0,
        late_overload=overload,
    )

    assert settled.oscillates == oscillates


def test_a_study_that_is_interrupted_says_nothing():
    assert studies.settle(2, Conditions(), watch=Watch(interrupted=lambda: True)) is None

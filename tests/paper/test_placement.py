"""Fawwaz 2022, claim by claim.

Figures 8 and 11 at the paper's scale with five seeds against the closed forms of docs/placement.md;
every claim of the text about Figures 8 to 22 with fewer seeds. The full table is in
docs/placement.md.
"""

import pytest

from lab.papers.placement import delegation as delegation_paper
from lab.papers.placement.claims import CLAIMS, means
from lab.papers.placement.policies import Policy, compare
from lab.papers.placement.sweeps import points, rows
from tests.lab.papers.placement.closed_forms import expected_external

SEEDS = 5
WITHIN = 0.01

KNOWN = [
    ({"locality": 0.05}, {Policy.EP: 256_327, Policy.NS: 275_043, Policy.LP: 288_577}),
    ({"locality": 0.5}, {Policy.EP: 157_857, Policy.NS: 163_212, Policy.LP: 176_746}),
    ({"locality": 1.0}, {Policy.EP: 0, Policy.NS: 0, Policy.LP: 13_534}),
    ({"subscriptions": 50}, {Policy.EP: 46_776, Policy.NS: 47_120, Policy.LP: 107_773}),
    ({"subscriptions": 390}, {}),
]
"""Figures 8 and 11: what docs/placement.md prints, at 100,000 topics."""


@pytest.mark.full
@pytest.mark.parametrize(("changes", "printed"), KNOWN, ids=str)
def test_figures_8_and_11_match_the_closed_forms_within_one_percent(changes, printed):
    setting = delegation_paper.Setting(**changes)
    expected = expected_external(setting)

    runs = [compare(delegation_paper.draw(setting, seed=seed)) for seed in range(SEEDS)]

    for policy in Policy:
        mean = sum(run[policy].external for run in runs) / SEEDS
        assert mean == pytest.approx(expected[policy], rel=WITHIN, abs=1e-9), policy
    for policy, messages in printed.items():
        assert expected[policy] == pytest.approx(messages, abs=0.5)


def test_figure_11_lp_and_ns_are_within_one_percent_at_3_9_subscribers_per_topic():
    expected = expected_external(delegation_paper.Setting(subscriptions=390))

    assert expected[Policy.LP] / expected[Policy.NS] == pytest.approx(1.007, abs=5e-4)


@pytest.fixture(scope="module")
def curves():
    found = [row for point in points(delegation_seeds=1, placement_seeds=18) for row in rows(point)]
    return means(found)


@pytest.mark.full
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"figure {claim.figure}: {claim.text}")
def test_our_figures_say_what_the_paper_says_unless_known_to_differ(curves, claim):
    assert claim.check(curves) == (not claim.differs), claim.told(curves)

"""Esposito 2018, 4, claim by claim; docs/codecs.md has the full tables."""

import pytest

from lab.papers.codecs.claims import CLAIMS, by_series
from lab.papers.codecs.distance import distances
from lab.papers.codecs.figures import OVER_SIZE, OVER_TIME, Setting, over_size, over_time
from lab.papers.codecs.plan import Charge
from lab.papers.codecs.schemes import Scheme
from lab.papers.figures import Verdict

TIMED = [claim for claim in CLAIMS if claim.figure in OVER_TIME]
SIZED = [claim for claim in CLAIMS if claim.figure in OVER_SIZE]


@pytest.fixture(scope="module")
def over_thirty_trees():
    return by_series(over_time(Setting()))


@pytest.fixture(scope="module")
def over_sizes():
    return by_series(over_size(Setting(seeds=10, pairs=20_000, sizes=(10, 40, 400, 1_000))))


@pytest.mark.parametrize("claim", TIMED, ids=lambda c: c.text[:30])
def test_figures_4_to_6_over_thirty_trees(over_thirty_trees, claim):
    verdict = claim.verdict(over_thirty_trees)

    assert verdict is not Verdict.NO, claim.told(over_thirty_trees)
    if claim.figure == 4:
        assert verdict is Verdict.YES, claim.told(over_thirty_trees)


@pytest.mark.slow
@pytest.mark.parametrize("claim", SIZED, ids=lambda c: c.text[:30])
def test_figures_7_to_9_over_sizes(over_sizes, claim):
    assert claim.verdict(over_sizes) is Verdict.YES, claim.told(over_sizes)


def test_no_scheme_is_better_than_the_yardstick():
    found = list(distances(Setting(seeds=3), sizes=(40,)))

    assert min(each.ratio for each in found) == 1.0
    assert {each.charge for each in found} == set(Charge)
    assert all(each.ratio == 1.0 for each in found if each.scheme is Scheme.EXACT)

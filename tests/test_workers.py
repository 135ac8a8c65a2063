"""How tests are shared out among the workers of pytest-xdist."""

import os

import pytest
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]


@pytest.fixture(scope="module")
def costly():
    """What a worker would make again for each of two tests that it does not run itself."""


@pytest.mark.parametrize("what", ["one", "other"])
def test_what_shares_a_fixture_of_its_module_goes_to_one_worker(request, costly, what):
    group = LoadGroupScheduling._split_scope(None, request.node.nodeid)

    wanted = "tests/test_workers.py" if "PYTEST_XDIST_WORKER" in os.environ else group
    assert group == wanted

"""Agents of a commit change to this checkout under traffic, and nothing is lost or comes twice."""

import pytest

from federator.errors import LinkError
from lab.upgrade import Settings, run


async def test_a_commit_that_is_none_is_named(tmp_path):
    with pytest.raises(LinkError, match="--since nowhere: a commit of this checkout is wanted"):
        await run(Settings(since="nowhere"), tmp_path, lambda line: None)


@pytest.mark.full
async def test_each_mixture_of_agents_carries_everything_once_and_in_order(tmp_path):
    outcome = await run(Settings(since="HEAD", rate_hz=50), tmp_path, lambda line: None)

    assert outcome.restarts == 12
    assert outcome.held, [*outcome.lines()]
    assert all(arrivals.sent > 500 for arrivals in outcome.arrivals.values())

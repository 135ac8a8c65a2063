"""Cores on real brokers follow a steerer's plan while it holds."""

import contextlib

import pytest

from lab.grid.processes.daemons import SteererProcess
from lab.grid.running import RunningGrid
from lab.grid.topology import Grid
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import QUICK, settled
from tests.real.polling import until

TOPIC = "plant/7/temp"


def agreed_on(core):
    def fault(statuses):
        for here, status in statuses.items():
            found = [mesh["core"] for mesh in status["meshes"] if mesh["filter"] == TOPIC]
            if found != [core]:
                return f"broker {here} follows {found}"
            if any(mesh["handing_over_from"] is not None for mesh in status["meshes"]):
                return f"broker {here} hands over"
        return None

    return fault


def nobody_is_placed(statuses):
    placed = [here for here, status in statuses.items() if status["own_core"]["priority"] != 0]
    return f"brokers {placed} follow the planner" if placed else None


@contextlib.asynccontextmanager
async def line(folder):
    """Five brokers in a row; what 4 publishes is wanted at 1, 4 and 5; the core is 1."""
    mesh = {"core": "placed", "core_check_ms": 100, "core_hold_ms": 1_000}
    async with RunningGrid(
        Grid(1, 5, 1),
        folder,
        link_delay_ms=1,
        agent_options={"mesh": mesh},
        broker_options=QUICK,
    ) as grid:
        subscribers = [
            Subscriber(grid.brokers[i].port, TOPIC, client_id=f"sub-{i}", qos=1) for i in (1, 4, 5)
        ]
        publisher = Publisher(grid.brokers[4].port, TOPIC, client_id="pub", rate_hz=50, qos=1)
        async with running(*subscribers, publisher):
            await until(lambda: all(len(s.came) > 20 for s in subscribers), "traffic everywhere")
            await grid.until(agreed_on(1))
            yield grid, publisher, subscribers


async def all_came_once(publisher, subscribers, first):
    """Traffic goes on, and of what came since ``first`` nothing is missing or came twice."""
    last = publisher.sent
    await until(lambda: all(max(s.came) > last for s in subscribers), "traffic at the end")
    for subscriber in subscribers:
        assert [n for n in range(first, last) if subscriber.came[n] != 1] == []


@pytest.mark.slow
@pytest.mark.full
async def test_a_steerer_moves_the_core_to_its_traffic_and_back_when_it_ends(tmp_path):
    async with line(tmp_path) as (grid, publisher, subscribers):
        first = await settled(publisher, *subscribers)
        urls = [grid.brokers[here].url for here in sorted(grid.brokers)]
        steerer = SteererProcess(tmp_path / "steerer", *urls, keys='federation = "grid"')

        await steerer.start()
        try:
            await grid.until(agreed_on(4))
            told = (await steerer.status())["cores"]
        finally:
            await steerer.stop()
        await grid.until(agreed_on(1))
        await grid.until(nobody_is_placed)

        await all_came_once(publisher, subscribers, first)
    (decision,) = told["decisions"]
    assert decision["cost_promised"] == pytest.approx(0.4 * decision["cost_before"], rel=0.01)
    assert decision["moves"][0].startswith(TOPIC)

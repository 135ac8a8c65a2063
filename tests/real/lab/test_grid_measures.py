"""A grid that loses something says so."""

import asyncio
from dataclasses import replace

import pytest

from lab.grid.measure import Measurement
from lab.grid.report import as_json
from lab.grid.running import RunningGrid
from lab.grid.scenario import default_scenario
from lab.grid.topology import Grid
from tests.real.polling import until


def no_links(statuses):
    return not any(link["state"] == "up" for s in statuses.values() for link in s["links"])


@pytest.mark.full
async def test_what_a_cut_link_loses_is_counted_and_a_fault(tmp_path):
    grid = Grid(1, 2)
    scenario = replace(default_scenario(grid), runs=(400,), gap_ms=(20, 20))
    running = RunningGrid(
        grid, tmp_path, link_delay_ms=scenario.link_delay_ms, broker_options=("sys_interval 1",)
    )
    sent_at_cut: list[int] = []

    def progress(what, sent, total):
        if sent and not sent_at_cut:
            sent_at_cut.append(sent)

    async with running:
        measurement = Measurement(scenario, running, progress=progress)
        try:
            await measurement.subscribe()
            (link,) = grid.links
            run = asyncio.create_task(measurement.run())
            await until(lambda: bool(sent_at_cut), "the first publications leave")
            await running.order("cut", link)
            await running.until(lambda statuses: None if no_links(statuses) else "linked")
            await running.order("heal", link)
            outcome = await run
        finally:
            await measurement.stop()

    ((_, delivery),) = outcome.federated
    arrivals = delivery.arrivals
    assert 0 < arrivals.lost < 400
    assert arrivals.duplicates == arrivals.disordered == arrivals.foreign == 0
    assert any(f"{arrivals.lost} lost" in fault for fault in outcome.faults)
    report = as_json(outcome)
    assert report["ok"] is False
    assert report["federated"][0]["lost"] == arrivals.lost

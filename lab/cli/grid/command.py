"""``federator-lab grid``: many real brokers and agents on this machine, measured beside the paper.

Exit codes: 0 when all is well, 1 when something was lost, came twice or out of order, or when the
mesh is not the expected one, or when shortest paths are not what they promise, or when the report
does not say what clients measured; 69 when the grid did not start or no report can be made here.
"""

import asyncio
import contextlib
import json
import math
import signal
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console, RenderableType

from federator.cli.options import FOLDER, columns
from federator.protocol.topology.graph import Strength
from federator.protocol.types import BrokerId
from lab.cli.grid import strategies as strategies
from lab.cli.grid.plan import (
    AGENT_OPTIONS,
    CHEN2020_NAME,
    Asked,
    Changes,
    Plan,
    Records,
    Trial,
    scenario_of,
    trial_of,
)
from lab.frame.printing import (
    Bars,
    folder_for,
    report_console,
    tell,
    until_stopped,
    write_atomically,
)
from lab.frame.settings import options
from lab.grid.measure import Measurement
from lab.grid.processes.children import Child
from lab.grid.report import as_json, render, render_mesh
from lab.grid.reporting import Copies
from lab.grid.running import JoinedGrid, RunningGrid
from lab.grid.scenario import Scenario

FAULTY = 1
REPORT_COLUMNS = 100
REAP_S = 0.5


@click.command(name="grid")
@options(Asked)
@options(Changes, sparse=True)
@click.option(
    "--report",
    is_flag=False,
    flag_value="",
    metavar="[DIR]",
    help="Make the report of it, here or in a new folder, and hold it against the clients.",
)
@click.option("--json", "json_output", is_flag=True, help="Print the figures as one JSON object.")
@click.option(
    "--keep-logs", type=FOLDER, help="Keep configurations, state and logs in this folder."
)
def command(
    asked: Asked,
    given: dict[str, Any],
    report: str | None,
    json_output: bool,
    keep_logs: Path | None,
) -> int:
    """Run many real brokers and agents on this machine, and measure them.

    Without --preset, the arrangement of the paper on a grid of any size.
    """
    wants_records = asked.metrics is not None or report is not None
    if asked.auto is not None:
        others = (asked.preset, asked.strategy, asked.plot, asked.metrics, report)
        if asked.all_pairs or given or any(value is not None for value in others):
            raise click.UsageError("--auto goes with --stay, --state, --json and --keep-logs only")
        with folder_for(keep_logs, verb="grid") as folder:
            work = _carry_out_auto(asked, folder, as_json=json_output)
            try:
                return asyncio.run(until_stopped(work, name="grid"))
            except click.exceptions.Exit as stopped:
                code = stopped.exit_code
                return 0 if asked.stay and code == 128 + signal.SIGINT else code
    if asked.preset == CHEN2020_NAME or asked.strategy is not None:
        if wants_records:
            raise click.UsageError("--metrics and --report do not go with strategies side by side")
        if asked.stay or asked.state is not None:
            raise click.UsageError("--stay and --state do not go with strategies side by side")
        trial: Trial | None = trial_of(asked, given)
    elif asked.all_pairs or asked.plot is not None:
        raise click.UsageError("--all-pairs wants --strategy, and --plot wants --preset chen2020")
    else:
        trial = None
    if report is not None and asked.stay and "publications" not in given:
        raise click.UsageError("--report wants --publications beside --stay, to be held against")
    plan = Plan(
        scenario=scenario_of(None if trial else asked.preset, given),
        trial=trial,
        with_clients=not asked.stay
        or asked.preset is not None
        or not given.keys().isdisjoint(("subscribers", "publications")),
        measure=not asked.stay or "publications" in given,
        stay=asked.stay,
        state=asked.state,
        as_json=json_output,
        records=Records.wanted(asked.metrics, report),
    )
    if asked.state is not None:
        asked.state.unlink(missing_ok=True)  # nobody shall take an older grid's for ours
    with folder_for(keep_logs, verb="grid") as folder:
        return asyncio.run(until_stopped(_carry_out(plan, folder), name="grid"))


async def _carry_out(plan: Plan, folder: Path) -> int:
    """The exit code: that of the measurement also when stopped while staying."""
    console = report_console(REPORT_COLUMNS, stderr=plan.as_json)
    code = 0
    copies: Copies | None = None
    if plan.trial is not None:
        return await _carry_out_trial(plan.trial, folder, console, as_json=plan.as_json)
    with Bars() as bars:
        bar = bars.progress
        scenario = plan.scenario
        total = 2 * len(scenario.grid.ids)
        starting = bar.add_task(f"starting {total // 2} brokers and agents", total=total)
        running = RunningGrid(
            scenario.grid,
            folder,
            link_delay_ms=scenario.link_delay_ms,
            redundancy=scenario.redundancy,
            agent_options=AGENT_OPTIONS if plan.records is not None else None,
            progress=lambda what: bar.advance(starting),
        )
        measurement = Measurement(scenario, running, progress=bars)

        def show(what: RenderableType) -> None:
            if not plan.as_json:
                with bars.away():
                    console.print(what, end="\n\n")

        async with running:
            try:
                if plan.with_clients:
                    settling = bar.add_task("settling the mesh", total=1)
                    await measurement.subscribe()
                    bar.advance(settling)
                    show(render_mesh(scenario, measurement.mesh, measurement.relayed_to))
                if plan.state is not None:
                    write_atomically(plan.state, json.dumps(running.state(), indent=1) + "\n")
                if plan.measure:
                    show(_what_follows(scenario))
                    outcome = await measurement.run()
                    code = FAULTY if outcome.faults else 0
                    copies = Copies.of(await running.statuses())
                    bar.stop()
                    if plan.as_json:
                        tell((), as_json(outcome), as_json=True)
                    else:
                        console.print(render(outcome, columns=console.width))
                if plan.stay:
                    bar.stop()
                    with contextlib.suppress(asyncio.CancelledError):
                        await _stay(running, plan)
            finally:
                await measurement.stop()
    if plan.records is not None and (copies is not None or plan.stay):
        plan.records.keep(running, measurement)
        agrees = await plan.records.tell(measurement, copies, console)
        code = code if agrees else FAULTY
    return code


def _what_follows(scenario: Scenario) -> str:
    """Said before the measurement: without a terminal there is no bar to look at meanwhile."""
    count = sum(scenario.runs)
    lasts = f", some {math.ceil(scenario.publishing_s)} s" if scenario.publishing_s else ""
    return f"publishing {count:,} messages{lasts} ..."


async def _carry_out_trial(trial: Trial, folder: Path, console: Console, *, as_json: bool) -> int:
    with Bars() as bars:
        if trial.settings:
            trials = [(trial.arrangement, setting) for setting in trial.settings]
            outcomes = await strategies.compare(trials, folder, progress=bars)
            faults, told = strategies.faults(outcomes), strategies.as_json(outcomes)
            shown = strategies.render(outcomes)
        else:
            trials = strategies.completing(trial.arrangement)
            outcomes = await strategies.compare(trials, folder, progress=bars)
            faults = strategies.completion_faults(outcomes)
            told = strategies.completion_json(outcomes)
            shown = strategies.render_completion(outcomes)
    if trial.plot is not None:
        write_atomically(trial.plot, strategies.completion_chart(outcomes))
    if as_json:
        tell((), told, as_json=True)
    else:
        console.print(shown)
    return FAULTY if faults else 0


async def _stay(running: RunningGrid, plan: Plan) -> None:
    """Say how to try the grid, then wait for a signal, noticing what others kill.

    Ends by cancellation only.
    """
    click.echo(_invitation(running), err=plan.as_json)
    alive: dict[str, Child] = {f"broker {i}": each for i, each in running.brokers.items()}
    alive |= {f"agent {i}": each for i, each in running.agents.items()}
    while True:
        for name in [name for name, process in alive.items() if not process.running]:
            click.echo(f"{name} (pid {alive.pop(name).pid}) has ended", err=True)
        await asyncio.sleep(REAP_S)


def _invitation(running: RunningGrid) -> str:
    ids = running.grid.ids
    near, far = running.brokers[ids[0]], running.brokers[ids[-1]]
    lines = [f"{len(ids)} brokers are up on {near.host}:"]
    for here, broker in running.brokers.items():
        agent = f"agent {running.agents[here].http}/status"
        lines.append(f"  broker {here:<3} port {broker.port}  pid {broker.pid}  {agent}")
    lines += [
        "",
        "Subscribe on one, publish on another:",
        f"  mosquitto_sub -p {near.port} -t 'try/#' -v",
        f"  mosquitto_pub -p {far.port} -t try/it -m 'from broker {ids[-1]}'",
        "",
        "Ctrl-C ends them all.",
    ]
    return "\n".join(lines)


async def _carry_out_auto(asked: Asked, folder: Path, *, as_json: bool) -> int:
    """Start, wait until the graph is as promised, kill the seed, wait again; or stay."""
    count, started_s = asked.auto or 0, time.monotonic()
    async with JoinedGrid(count, folder) as grid:
        told = {"joined": _told(await grid.settled(), time.monotonic() - started_s)}
        if asked.state is not None:
            write_atomically(asked.state, json.dumps(grid.state(), indent=1) + "\n")
        if asked.stay:
            click.echo("\n".join(_lines(f"{count} brokers joined by one", told["joined"])))
            click.echo("\n".join(_auto_invitation(grid)))
            await asyncio.Event().wait()
        killed_s = time.monotonic()
        grid.kill(BrokerId(0))
        told["mended"] = _told(await grid.settled(), time.monotonic() - killed_s)
    joined = _lines(f"{count} brokers joined by one", told["joined"])
    mended = _lines("the seed was killed, and the rest mended", told["mended"])
    tell([*joined, "", *mended], told, as_json=as_json)
    return 0


def _told(strength: Strength, took_s: float) -> dict[str, Any]:
    counts = ("brokers", "links", "degree_min", "degree_max", "diameter", "survives_any_death")
    return {"took_s": round(took_s, 1), **{name: getattr(strength, name) for name in counts}}


def _lines(title: str, told: dict[str, Any]) -> list[str]:
    rows = [(name.replace("_", " "), str(value)) for name, value in told.items()]
    return [f"{title}:", *columns(rows, indent=2)]


def _auto_invitation(grid: JoinedGrid) -> list[str]:
    first = next(iter(grid.agents.values()))
    places = [
        f"  broker {id:<3} port {broker.port}  agent {grid.agents[id].http}"
        for id, broker in grid.brokers.items()
    ]
    asked = f"  federator topology --url {first.http} --what-if remove=5"
    return ["", *places, "", "What would break, for example:", asked, "", "Ctrl-C ends them all."]

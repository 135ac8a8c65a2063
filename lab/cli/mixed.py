"""``federator-lab mixed``: do reports and dashboard tell the same as clients?"""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
import uvloop

from federator.cli.options import FOLDER, json_option, option
from lab.cli.common import fields_of, new_folder, tell, until_stopped
from lab.grid.reporting import check_analytics
from lab.mixed.run import Looked, MixedRun, Outcome, Plan

FAILED = 1


@click.command(name="mixed")
@option("--minutes", type=click.FloatRange(0.5, 1_440), default=10.0)
@option("--rate", type=click.FloatRange(1, 2_000), default=50.0, help="msg/s in all, QoS 1.")
@option("--seed", type=click.IntRange(0), default=1, help="Of who comes and goes, and when.")
@option("--report-every", type=click.FloatRange(0.2, 1_440), default=5.0, help="Minutes.")
@click.option("--plant", is_flag=True, help="Really lose something: both must say so.")
@click.option("--keep", type=FOLDER, help="Keep logs, records and reports in this new folder.")
@json_option
def command(
    minutes: float,
    rate: float,
    seed: int,
    report_every: float,
    plant: bool,
    keep: Path | None,
    as_json: bool,
) -> int:
    """Hold reports and the live dashboard against clients' counts while all come and go.

    All are subscribers, agents and a gateway.

    Exits 0 when they tell one story: nothing was lost and no report says otherwise; with --plant,
    when clients lost something and both say so in the end. 1 otherwise.
    """
    check_analytics()
    folder = new_folder(keep, verb="mixed")
    plan = Plan(minutes, rate, seed, report_every, plant)
    run = MixedRun(plan, folder, progress=partial(click.echo, err=as_json))
    ended = uvloop.run(until_stopped(run.run(), name="mixed"))
    tell(told(ended), {"held": ended.held, **fields_of(ended)}, as_json=as_json)
    if not ended.held:
        click.echo(f"logs, records and reports: {folder}", err=as_json)
        return FAILED
    if keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def told(outcome: Outcome) -> list[str]:
    """What came of it, for people."""
    tally = outcome.tally
    return [
        f"{outcome.published:,} publications, {tally.visits} visits of subscribers, "
        f"{outcome.gateway_visits} of a gateway, {outcome.agent_restarts} restarts of agents",
        f"clients: {tally.owed:,} owed, {tally.missing} missing, {tally.again} twice",
        *(f"  {example}" for example in tally.examples[:5]),
        _told_by("reports", outcome.reports),
        _told_by("looks at the dashboard", outcome.glances),
        "one story" if outcome.held else "NOT ONE STORY",
    ]


def _told_by(what: str, looked: Sequence[Looked]) -> str:
    wolf, last = sum(each.cries_wolf for each in looked), looked[-1]
    return (
        f"{what}: {len(looked)}, {wolf} said lost where clients had lost nothing; the last says "
        f"{last.reported_missing} of {last.offered:,} missing: {last.verdict}"
    )

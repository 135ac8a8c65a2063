"""``federator-lab steered-demands`` and ``steered-steady``: live steering on real brokers."""

from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import uvloop

from federator.cli.options import FOLDER, json_option, option
from lab.cli.common import fields_of, new_folder, until_stopped
from lab.cli.steered import left, told
from lab.steered import steady
from lab.steered.demands import COST_TIMES_MAX, steer_demands
from lab.steered.verdicts import Verdict

_Found = TypeVar("_Found")


@click.command(name="steered-demands")
@option("--demands", type=click.IntRange(1, 100), default=10, help="How many, one after the other.")
@option("--seed", type=int, default=1, help="Of the first; the others follow.")
@option("--keep", type=FOLDER, help="Keep configurations, instances and logs in this new folder.")
@json_option
def demands(demands: int, seed: int, keep: Path | None, as_json: bool) -> int:
    """Hold what a steerer makes of seeded demands against the exact answer, on six real brokers.

    Each demand fits, and overloads a link by shortest paths. 40 s after the steerer began, what
    the paths of all flows cost is held against `plan solve --method exact` on the instance that it
    measured. A minute each. Exits 0 when all are within 5 % of exact and no link is over 95 %.
    """
    folder = new_folder(keep, verb="steered-demands")
    seeds = range(seed, seed + demands)
    work = steer_demands(folder, seeds, partial(click.echo, err=as_json))
    found = _run(work, "steered-demands")
    count = sum(each.held for each in found)
    worst = max(each.cost / each.exact for each in found) - 1
    text = f"{count} of {len(found)} demands: paths at most {worst:+.1%} over exact"
    wanted = f"wanted: all, within {COST_TIMES_MAX - 1:.0%}, no link over 95 %"
    verdict = Verdict(f"{text} ({wanted})", count == len(found))
    held = told([verdict], {"demands": found}, as_json=as_json)
    return left(folder, keep, held=held, as_json=as_json)


@click.command(name="steered-steady")
@option("--minutes", type=click.FloatRange(0.1, 120), default=10.0, help="Of steady demand.")
@option("--seed", type=int, default=1, help="Of the noise.")
@option("--keep", type=FOLDER, help="Keep configurations and logs in this new folder.")
@json_option
def steady_command(minutes: float, seed: int, keep: Path | None, as_json: bool) -> int:
    """Watch a steerer of six real brokers while nothing changes but for noise; then something does.

    Rates are noisy by 20 %. After the first minute and the minutes told: a burst of two seconds,
    and a shift that lasts. Exits 0 when each flow moved at most once in five minutes, nothing moved
    for the burst, and 30 s after the shift no link is over 95 %.
    """
    folder = new_folder(keep, verb="steered-steady")
    progress = partial(click.echo, err=as_json)
    work = steady.stay_steady(folder, seconds=minutes * 60, seed=seed, progress=progress)
    found = _run(work, "steered-steady")
    held = told(steady.verdicts(found), fields_of(found), as_json=as_json)
    return left(folder, keep, held=held, as_json=as_json)


def _run(work: Coroutine[Any, Any, _Found], name: str) -> _Found:
    return uvloop.run(until_stopped(work, name=name))

"""``federator-lab over-delivery``: what a bounded cover brings that no leaf wanted."""

from functools import partial
from pathlib import Path

import click

from federator.cli.options import FILE, FOLDER, json_option, option
from federator.config.topology import HubSettings
from lab.cli.common import in_folder, judged, numbers
from lab.cli.line_chart import line_chart
from lab.leaves.naming import NAMINGS, SKEW
from lab.leaves.over_delivery import OverDelivery, over_delivery
from lab.leaves.over_delivery_live import Counted, counted

IN_VAIN_MAX = 0.1
JUDGED = "shops"
DEFAULT = HubSettings().filters_max
BOUNDS = "375,750,1050,1500,2100,3000,4200,6000,12000,36000"


@click.command(name="over-delivery")
@click.option("--bounds", callback=numbers, default=BOUNDS, help="Filters told at most, in turn.")
@option("--publications", type=click.IntRange(2, 10_000_000), default=200_000, help="Drawn.")
@option("--skew", type=click.FloatRange(0, 2), default=SKEW, help="Zipf's exponent of traffic.")
@option("--seed", type=int, default=1)
@click.option("--svg", type=FILE, help="Draw it.")
@click.option("--live", is_flag=True, help="And once on real brokers and agents.")
@click.option("--keep", type=FOLDER, help="Keep their configurations and logs in this folder.")
@json_option
def command(
    bounds: tuple[int, ...],
    publications: int,
    skew: float,
    seed: int,
    svg: Path | None,
    live: bool,
    keep: Path | None,
    as_json: bool,
) -> int:
    """Draw what 100 leaves of 100 filters want and the world publishes; add up what none wanted.

    Exits 1 when a hub with the default bound carries 10 % or more of its bytes in vain for a chain
    of shops, drawn or (--live) counted by itself on real processes; otherwise 0.
    """
    every = dict.fromkeys((*bounds, DEFAULT))
    results = {
        name: over_delivery(naming, every, seed=seed, publications=publications, skew=skew)
        for name, naming in NAMINGS.items()
    }
    click.echo("\n".join(_table(results)), err=as_json)
    if svg is not None:
        svg.write_text(_drawn(results), encoding="utf-8")
    worst = next(each for each in results[JUDGED] if each.bound == DEFAULT).then.in_vain
    lines: list[str] = []
    found: dict[str, object] = {"over_delivery": results}
    if live:
        shops = NAMINGS[JUDGED]
        measure = partial(counted, naming=shops, seed=seed, skew=skew, publications=publications)
        ended = in_folder(measure, keep, verb="over-delivery")
        lines.append(_live(ended))
        found["live"] = ended
        worst = max(worst, ended.then.in_vain)
    found = {"in_vain_judged": worst, **found}
    return judged(lines, found, held=worst < IN_VAIN_MAX, as_json=as_json)


def _table(results: dict[str, list[OverDelivery]]) -> list[str]:
    lines = ["naming      bound  filters  in vain at first   then"]
    for name, each in results.items():
        lines += [
            f"{name:9}  {r.bound:>6,}  {r.filters:>7,}  "
            f"{r.first.in_vain:>16.1%}  {r.then.in_vain:>5.1%}"
            for r in each
        ]
    return lines


def _live(measured: Counted) -> str:
    first, then = measured.first, measured.then
    return (
        f"live, {JUDGED}, bound {DEFAULT}: {measured.filters_asked} filters asked for; "
        f"{first.in_vain:.1%} of {first.bytes_carried} bytes in vain at first, "
        f"{then.in_vain:.1%} of {then.bytes_carried} then"
    )


def _drawn(results: dict[str, list[OverDelivery]]) -> str:
    curves = {
        name: {float(r.bound): 100 * r.then.in_vain for r in each} for name, each in results.items()
    }
    curves["pooled, at first"] = {float(r.bound): 100 * r.first.in_vain for r in results["pooled"]}
    return line_chart(
        "100 leaves of 100 filters: carried to their hub in vain",
        "hub.filters_max",
        "% of bytes",
        curves,
        log_x=True,
    )

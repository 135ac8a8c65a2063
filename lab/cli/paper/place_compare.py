"""``federator-lab paper place-compare``: methods side by side on random instances of any size."""

import time
from typing import Any

import click

from federator.cli.options import columns, option
from federator.planner.placement.cores import PlacementError
from lab.cli.paper.place_solve import METHODS, PROVING, SEED_MAX, solve
from lab.papers.placement.instances import Setting, draw


@click.command(name="place-compare")
@option("--devices", type=click.IntRange(1, 2_000), default=6)
@option("--topics", type=click.IntRange(1, 10_000), default=10)
@option("--services", type=click.IntRange(0, 10_000), default=6)
@option("--utilisation", type=click.FloatRange(0, 1), default=0.2)
@option("--load", type=click.FloatRange(0.01, 1), default=0.7)
@option(
    "--network-scale",
    type=click.FloatRange(0),
    default=Setting().network_scale,
    help="Factor on the paper's power per traffic and hop.",
)
@option("--seed", type=click.IntRange(0, SEED_MAX), default=0)
@click.option("--method", "methods", type=click.Choice(METHODS), multiple=True, help="[all]")
@option("--time-limit-s", type=click.FloatRange(0.1), default=60.0)
def command(
    seed: int,
    methods: tuple[str, ...],
    time_limit_s: float,
    **options: Any,  # noqa: ANN401  # fields of Setting by name
) -> None:
    """Compare placement methods on a random instance."""
    setting = Setting(**options)
    instance = draw(setting, seed=seed)
    containers, pairs = setting.topics + setting.services, len(instance.pairs)
    click.echo(f"{setting.devices} devices, {containers} containers, {pairs} pairs, seed {seed}")
    rows = [("method", "power mW", "at least", "gap %", "seconds")]
    for method in methods or METHODS:
        started_s = time.perf_counter()
        try:
            found = solve(instance, method, seed=seed, time_limit_s=time_limit_s)
        except PlacementError as error:
            rows.append((method, str(error), "", "", f"{time.perf_counter() - started_s:.2f}"))
            continue
        took = f"{time.perf_counter() - started_s:.2f}"
        if found is None:
            rows.append((method, "nothing found", "", "", took))
        elif method not in PROVING:
            rows.append((method, f"{found.power:.6g}", "", "", took))
        else:
            gap = f"{100 * found.gap:.3f}"
            rows.append((method, f"{found.power:.6g}", f"{found.lower_bound:.6g}", gap, took))
    click.echo("\n".join(columns(rows)))

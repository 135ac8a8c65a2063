"""``federator-lab bench lossy-study``: links over datagrams in simulated time, without a machine.

Exit codes: 0; 78 when the library of the code is not installed.
"""

from dataclasses import replace

import click
from rich.table import Table

from federator.cli.options import option
from federator.config.datagrams import UdpSettings, require_codec
from lab.cli.common import numbers, report_console

COLUMNS = 140
RATE_MAX = 5_000


@click.command(name="lossy-study")
@option("--hops", type=click.IntRange(1, 9), default=3)
@option("--delay-ms", type=click.IntRange(0, 1_000), default=50)
@option("--plr", type=click.FloatRange(0, 0.3), default=0.02)
@option("--abl", type=click.FloatRange(1, 16), default=2.0)
@option(
    "--rates",
    callback=numbers,
    default="20,50,100,200,1000",
    metavar="N[,N]",
    help="Frames/s, evenly.",
)
@option("--count", type=click.IntRange(100, 1_000_000), default=2_000)
@option("--learning-s", type=click.FloatRange(0, 3_600), default=10.0)
@option("--seeds", type=click.IntRange(1, 1_000), default=8)
@click.option("--wait-ms", type=click.IntRange(1, 255), help="udp.wait_ms")
@click.option("--failing-ppm", type=click.IntRange(1, 500_000), help="udp.failing_ppm")
@click.option("--late-ppm", type=click.IntRange(1, 1_000_000), help="udp.late_ppm")
def command(
    hops: int,
    delay_ms: int,
    plr: float,
    abl: float,
    rates: tuple[int, ...],
    count: int,
    learning_s: float,
    seeds: int,
    **told: int | None,
) -> None:
    """Study delays and cost of repair packets in simulated time, over many seeds; needs no root."""
    if not all(1 <= rate <= RATE_MAX for rate in rates):
        raise click.UsageError(f"--rates: 1 to {RATE_MAX} wanted")
    require_codec("federator-lab bench lossy-study")
    from lab.bench.lossy import simulated  # noqa: PLC0415 - raptorq is optional

    udp = UdpSettings.model_validate({k: v for k, v in told.items() if v is not None})
    line = simulated.Line(hops, delay_ms, plr, abl, 0.0, count, learning_s, udp.limits())
    title = f"{hops} hops, {delay_ms} ms each, PLR {plr:g}, ABL {abl:g}, wait {udp.wait_ms} ms"
    table = Table(title=title, title_justify="left")
    names = ("frames/s", "delivered", "p50 ms", "p95", "p99", "p99.9", "p99 by seed", "worst")
    for name in (*names, "repairs/part", "B/frame, link", "by broker"):
        table.add_column(name, justify="right")
    for rate in rates:
        at_rate = replace(line, rate_hz=rate)
        worlds = [simulated.World(at_rate, seed).run() for seed in range(1, seeds + 1)]
        found = simulated.together(worlds)
        p99s = [world.quantile_ms(0.99) for world in worlds]
        spent, parts = found.spent, max(1, found.spent["parts"])
        table.add_row(
            str(rate),
            f"{len(found.delays_ms)}/{count * seeds}",
            *(str(found.quantile_ms(share)) for share in (0.5, 0.95, 0.99, 0.999)),
            f"{min(p99s)}-{max(p99s)}",
            str(found.delays_ms[-1]),
            f"{spent['repairs'] / parts:.2f}",
            f"{(spent['part_bytes'] + spent['repair_bytes']) / parts:.0f}",
            str(spent["given_back"]),
        )
    report_console(COLUMNS).print(table)

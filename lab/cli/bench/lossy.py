"""``federator-lab bench lossy`` and ``lossy-study``: links that lose packets, real and simulated.

``lossy`` compares links over TCP and over datagrams through the same lossy roads. It needs root,
for it makes network namespaces and TUN devices. Exit codes: 0 when the bars are met, 1 when not, 69
when something did not start. ``lossy-study`` needs no machine, for its time is simulated. Exit
codes: 0; 78 when the library of the code is not installed.
"""

import asyncio
import json
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from federator.cli.options import FILE, FOLDER, option
from federator.config.transports import UdpSettings, require_codec
from lab.bench.lossy.measure import ALL_ROUNDS, Plan, Row, Verdict, judged, measure
from lab.cli.common import folder_for, numbers, report_console, until_stopped

COLUMNS = 140
RATE_MAX = 5_000


@click.command(name="lossy")
@option("--hops", type=click.IntRange(1, 9), default=3)
@option("--delay-ms", type=click.FloatRange(0, 1_000), default=50.0)
@option("--plr", type=click.FloatRange(0, 0.3), default=0.02)
@option("--abl", type=click.FloatRange(1, 16), default=2.0)
@option("--rate", "rate_hz", type=click.FloatRange(1, 5_000), default=100.0)
@option("--rounds", type=click.IntRange(1, 100), default=3)
@option("--count", type=click.IntRange(100, 1_000_000), default=1_200)
@option("--learning", type=click.IntRange(1, 1_000_000), default=1_000)
@option("--forgetting", type=click.IntRange(1, 1_000_000), default=2_500)
@option("--qos", type=click.Choice(["0", "1", "0,1"]), default="0,1")
@click.option("--wait-ms", type=click.IntRange(1, 255), help="udp.wait_ms of the agents.")
@option("--seed", type=int, default=1)
@click.option("--json", "json_file", type=FILE)
@click.option("--keep-logs", type=FOLDER)
def lossy(
    qos: str,
    wait_ms: int | None,
    json_file: Path | None,
    keep_logs: Path | None,
    **options: Any,  # noqa: ANN401  # fields of Plan by name
) -> int:
    """Measure delays over links that lose packets: by TCP, and in datagrams with repair packets."""
    udp = {"wait_ms": wait_ms} if wait_ms is not None else {}
    plan = Plan(qos=tuple(int(each) for each in qos.split(",")), udp=udp, **options)
    with folder_for(keep_logs, verb="lossy") as folder:
        # Namespaces would stay behind.
        work = measure(plan, folder, progress=partial(click.echo, err=True))
        rows = asyncio.run(until_stopped(work, name="lossy"))
    verdicts = judged(rows)
    if json_file is not None:
        made_of = {"plan": plan, "rows": rows, "bar": verdicts}
        json_file.write_text(json.dumps(made_of, default=asdict, indent=1) + "\n")
    console = report_console(COLUMNS)
    console.print(_table(rows, plan))
    console.print(_bar(verdicts))
    return 0 if all(verdict.met for verdict in verdicts) else 1


def _table(rows: list[Row], plan: Plan) -> Table:
    title = f"{plan.hops} hops, {plan.delay_ms:g} ms each, {plan.rate_hz:g} publications/s of 64 B"
    table = Table(title=title, title_justify="left")
    table.add_column("transport")
    names = ("QoS", "round", "lost", "delivered", "twice", "p50 ms", "p95", "p99", "worst")
    for name in (*names, "B/publication", "repairs/part", "model", "by broker"):
        table.add_column(name, justify="right")
    for row in sorted(rows, key=lambda row: (-row.plr, row.qos, row.transport, row.turn)):
        if row.turn != ALL_ROUNDS and (plan.rounds == 1 or not row.plr):
            continue  # the same as all rounds
        table.add_row(
            row.transport,
            str(row.qos),
            "all" if row.turn == ALL_ROUNDS else str(row.turn),
            f"{row.lost_packets:.2%}",
            f"{row.delivered}/{row.offered}",
            str(row.twice),
            *(f"{value:.0f}" for value in (row.p50, row.p95, row.p99, row.worst)),
            f"{row.bytes_per_publication:.0f}",
            *("" if v is None else f"{v:.3f}" for v in (row.repairs_per_part, row.model)),
            "" if row.by_broker is None else str(row.by_broker),
        )
    return table


def _bar(verdicts: list[Verdict]) -> Table:
    table = Table("", "wanted", "got", "met", title="The bar", title_justify="left")
    for verdict in verdicts:
        table.add_row(verdict.what, verdict.wanted, verdict.got, "yes" if verdict.met else "NO")
    return table


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
def lossy_study(
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

    named: dict[str, Any] = {k: v for k, v in told.items() if v is not None}
    udp = UdpSettings(**named)
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

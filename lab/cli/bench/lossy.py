"""``federator-lab bench lossy`` and ``lossy-study``: links that lose packets, real and simulated.

``lossy`` compares links over TCP and over datagrams through the same lossy roads. It needs root,
for it makes network namespaces and TUN devices. Exit codes: 0 when the bars are met, 1 when not, 69
when something did not start. ``lossy-study`` needs no machine, for its time is simulated. Exit
codes: 0; 78 when the library of the code is not installed.
"""

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click
from rich.table import Table

from federator.cli.options import FILE, FOLDER
from federator.config.transports import UdpSettings, require_codec
from lab.bench.lossy.measure import ALL_ROUNDS, Plan, Row, judged, measure
from lab.frame.printing import (
    bars_table,
    folder_for,
    report_console,
    table_of,
    until_stopped,
    write_json,
)
from lab.frame.settings import numbers, options, setting

COLUMNS = 140
RATE_MAX = 5_000


@click.command(name="lossy")
@options(Plan)
@click.option("--json", "json_file", type=FILE)
@click.option("--keep-logs", type=FOLDER)
def lossy(plan: Plan, json_file: Path | None, keep_logs: Path | None) -> int:
    """Measure delays over links that lose packets: by TCP, and in datagrams with repair packets."""
    with folder_for(keep_logs, verb="lossy") as folder:
        # Namespaces would stay behind.
        work = measure(plan, folder, progress=partial(click.echo, err=True))
        rows = asyncio.run(until_stopped(work, name="lossy"))
    bars = judged(rows)
    write_json(json_file, {"plan": plan, "rows": rows, "bar": bars})
    console = report_console(COLUMNS)
    console.print(_table(rows, plan))
    console.print(bars_table("The bar", bars))
    return 0 if all(bar.met for bar in bars) else 1


def _table(rows: list[Row], plan: Plan) -> Table:
    names: tuple[str, ...] = ("transport", "QoS", "round", "lost", "delivered", "twice", "p50 ms")
    cells = [
        (
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
        for row in sorted(rows, key=lambda row: (-row.plr, row.qos, row.transport, row.turn))
        # Of one round, and without loss, a row is the same as all rounds.
        if row.turn == ALL_ROUNDS or (plan.rounds > 1 and row.plr)
    ]
    names = (*names, "p95", "p99", "worst", "B/publication", "repairs/part", "model", "by broker")
    title = f"{plan.hops} hops, {plan.delay_ms:g} ms each, {plan.rate_hz:g} publications/s of 64 B"
    return table_of(names, cells, title=title)


@dataclass(frozen=True, slots=True)
class Study:
    """What is simulated."""

    hops: int = setting(3, "", 1, 9)
    delay_ms: int = setting(50, "", 0, 1_000)
    plr: float = setting(0.02, "", 0, 0.3)
    abl: float = setting(2.0, "", 1, 16)
    rates: tuple[int, ...] = setting(
        "20,50,100,200,1000", "Frames/s, evenly.", parse=numbers, form="N[,N]"
    )
    count: int = setting(2_000, "", 100, 1_000_000)
    learning_s: float = setting(10.0, "", 0, 3_600)
    seeds: int = setting(8, "", 1, 1_000)
    wait_ms: int | None = setting(None, "udp.wait_ms", 1, 255)
    failing_ppm: int | None = setting(None, "udp.failing_ppm", 1, 500_000)
    late_ppm: int | None = setting(None, "udp.late_ppm", 1, 1_000_000)

    def __post_init__(self) -> None:
        if not all(1 <= rate <= RATE_MAX for rate in self.rates):
            raise ValueError(f"--rates: 1 to {RATE_MAX} wanted")


@click.command(name="lossy-study")
@options(Study)
def lossy_study(plan: Study) -> None:
    """Study delays and cost of repair packets in simulated time, over many seeds; needs no root."""
    require_codec("federator-lab bench lossy-study")
    from lab.bench.lossy import simulated  # noqa: PLC0415 - raptorq is optional

    named = {name: getattr(plan, name) for name in ("wait_ms", "failing_ppm", "late_ppm")}
    udp = UdpSettings(**{name: value for name, value in named.items() if value is not None})
    road = (plan.hops, plan.delay_ms, plan.plr, plan.abl)
    line = simulated.Line(*road, 0.0, plan.count, plan.learning_s, udp.limits())
    rows = []
    for rate in plan.rates:
        at_rate = replace(line, rate_hz=rate)
        worlds = [simulated.World(at_rate, seed).run() for seed in range(1, plan.seeds + 1)]
        found = simulated.together(worlds)
        p99s = [world.quantile_ms(0.99) for world in worlds]
        spent, parts = found.spent, max(1, found.spent["parts"])
        row = (
            str(rate),
            f"{len(found.delays_ms)}/{plan.count * plan.seeds}",
            *(str(found.quantile_ms(share)) for share in (0.5, 0.95, 0.99, 0.999)),
            f"{min(p99s)}-{max(p99s)}",
            str(found.delays_ms[-1]),
            f"{spent['repairs'] / parts:.2f}",
            f"{(spent['part_bytes'] + spent['repair_bytes']) / parts:.0f}",
            str(spent["given_back"]),
        )
        rows.append(row)
    title = f"{plan.hops} hops, {plan.delay_ms} ms each, PLR {plan.plr:g}, ABL {plan.abl:g}"
    delays = ("p50 ms", "p95", "p99", "p99.9", "p99 by seed", "worst")
    names = ("frames/s", "delivered", *delays, "repairs/part", "B/frame, link", "by broker")
    console = report_console(COLUMNS)
    console.print(table_of(names, rows, title=f"{title}, wait {udp.wait_ms} ms"))

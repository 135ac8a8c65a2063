"""What a gateway costs beside a broker alone, and the bars that the project sets it."""

from statistics import median
from typing import Final

from rich.console import RenderableType
from rich.table import Table

from federator.bench import records as r
from federator.bench.experiment import Plan
from federator.bench.records import Key, Results

THROUGHPUT_AT_LEAST: Final = {0: 0.5, 1: 0.7}
"""Of the broker alone, by QoS."""

ADDED_US_MAX: Final = 300.0
"""p50 of the gateway less that of the broker alone, at the lowest rate."""

RESIDENT_IDLE_MB_MAX: Final = 150.0


def gateway_bars(plan: Plan, results: Results) -> RenderableType:
    """The bars, as far as they were measured."""
    table = Table(
        title=f"The gateway before a broker, {plan.clients} clients",
        title_justify="left",
        title_style="bold",
    )
    for name in ("", "wanted", "got", "each", ""):
        table.add_column(name, justify="left" if not name else "right")

    def row(what: str, wanted: float, values: list[float], *, pattern: str, least: bool) -> None:
        if values:
            got = median(values)
            met = got >= wanted if least else got <= wanted
            table.add_row(
                what,
                f"{'>=' if least else '<='} {wanted:g}",
                format(got, pattern),
                " ".join(format(value, pattern) for value in values),
                "[green]met[/]" if met else "[bold red]not met[/]",
            )

    for qos in plan.qos:
        ours, alone = Key("gateway", 0, qos), Key("broker", 0, qos)
        ratios = results.ratios(r.THROUGHPUT, ours, alone)
        what = f"throughput, QoS {qos}, over the broker alone"
        row(what, THROUGHPUT_AT_LEAST[qos], ratios, pattern=".2f", least=True)
        for rate in plan.rates:
            metric = f"delay_p50_at_{rate}"
            pairs = zip(results.values(ours, metric), results.values(alone, metric), strict=False)
            added = [a - b for a, b in pairs]
            what = f"added p50 at {rate:,}/s, QoS {qos}, us"
            row(what, ADDED_US_MAX, added, pattern=".0f", least=False)
    idle = results.values(Key("gateway", 0, 0), r.RESIDENT_IDLE)
    what = f"resident memory with {r.IDLE_CLIENTS:,} idle clients, MB"
    row(what, RESIDENT_IDLE_MB_MAX, idle, pattern=".0f", least=False)
    return table

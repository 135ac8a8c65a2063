"""The bench's figures for people: a table of medians, ratios to the bridge, and the bars."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lab.bench import records as r
from lab.bench.experiment import Plan
from lab.bench.records import Key, Results
from lab.bench.systems import BRIDGE_LINES
from lab.frame.printing import table_of


@dataclass(frozen=True, slots=True)
class Bar:
    """What our agents must reach, as a multiple of the bridge over as many hops; with the metrics
    stream on, or keys, of what they reach without.
    """

    what: str
    metric: str
    hops: int
    qos: int
    wanted: float
    at_least: bool
    system: str = "federator"


_BROKER_CPU = "broker_cpu_per_million_at_saturation"

_M: Final = "metrics"
_D: Final = "direct"

BARS: Final = (
    Bar("throughput, 1 hop, QoS 0", r.THROUGHPUT, 1, 0, 0.85, True),
    Bar("throughput, 3 hops, QoS 0", r.THROUGHPUT, 3, 0, 1.0, True),
    Bar("brokers' CPU per message, 3 hops, QoS 0", _BROKER_CPU, 3, 0, 0.7, False),
    Bar("throughput, 1 hop, QoS 1", r.THROUGHPUT, 1, 1, 0.6, True),
    Bar("p50 at 1,000 msg/s, 1 hop, QoS 0", "delay_p50_at_1000", 1, 0, 2.0, False),
    Bar("p50 at 1,000 msg/s, 1 hop, QoS 1", "delay_p50_at_1000", 1, 1, 2.0, False),
    Bar("direct: throughput, 1 hop, QoS 0", r.THROUGHPUT, 1, 0, 1.0, True, _D),
    Bar("direct: throughput, 1 hop, QoS 1", r.THROUGHPUT, 1, 1, 1.0, True, _D),
    Bar("direct: throughput, few on their way, 1 hop, QoS 0", r.NARROW, 1, 0, 0.8, True, _D),
    Bar("direct: throughput, few on their way, 1 hop, QoS 1", r.NARROW, 1, 1, 0.9, True, _D),
    Bar("direct: p50 at 1,000/s, 1 hop, QoS 0", "delay_p50_at_1000", 1, 0, 1.7, False, _D),
    Bar("direct: p50 at 1,000/s, 1 hop, QoS 1", "delay_p50_at_1000", 1, 1, 2.0, False, _D),
    Bar("direct: p50 at 10,000/s, 1 hop, QoS 0", "delay_p50_at_10000", 1, 0, 2.5, False, _D),
    Bar("direct: p50 at 10,000/s, 1 hop, QoS 1", "delay_p50_at_10000", 1, 1, 3.0, False, _D),
    Bar("direct: throughput, 3 hops, QoS 0", r.THROUGHPUT, 3, 0, 1.6, True, _D),
    Bar("direct: brokers' CPU per message, 3 hops, QoS 0", _BROKER_CPU, 3, 0, 0.35, False, _D),
    Bar("direct: p50 at 1,000/s, 3 hops, QoS 0", "delay_p50_at_1000", 3, 0, 1.5, False, _D),
    Bar("polling: p50 at 1,000/s, 1 hop, QoS 0", "delay_p50_at_1000", 1, 0, 2.0, False, "polling"),
    Bar("polling: p50 at 1,000/s, 1 hop, QoS 1", "delay_p50_at_1000", 1, 1, 2.0, False, "polling"),
    *(
        Bar(f"metrics: throughput, {hops} hops, QoS {qos}", r.THROUGHPUT, hops, qos, 0.95, True, _M)
        for hops, qos in ((1, 0), (3, 0), (1, 1), (3, 1))
    ),
    *(
        Bar(f"metrics: p50 at 1,000/s, {hops} hops", "delay_p50_at_1000", hops, 0, 1.05, False, _M)
        for hops in (1, 3)
    ),
    *(
        Bar(f"{name}: throughput, {hops} hops, QoS {qos}", r.THROUGHPUT, hops, qos, 0.9, True, name)
        for name in ("signed", "sealed", "proven")
        for hops, qos in ((1, 0), (3, 0), (1, 1), (3, 1))
    ),
)


def render(plan: Plan, results: Results, faults: Iterable[str]) -> RenderableType:
    parts: list[RenderableType] = []
    for qos in plan.qos:
        parts += [_throughput(plan, results, qos), Text()]
        parts += [_delays(plan, results, qos), Text()]
    parts += [_bars(results), Text()]
    if "gateway" in plan.systems:
        parts += [_gateway_bars(plan, results), Text()]
    parts.append(_notes(plan))
    parts += [Text(f"fault: {fault}", style="bold red") for fault in faults]
    return Group(*parts)


def _links(plan: Plan) -> str:
    return f", links of {plan.link_delay_ms:g} ms" if plan.link_delay_ms else ""


_SATURATED: Final = (
    ("msg/s", r.THROUGHPUT, ",.0f"),
    ("window", r.WINDOW, ",.0f"),
    ("CPU s, brokers", "broker_cpu_at_saturation", ".2f"),
    ("agents", "agent_cpu_at_saturation", ".2f"),
    ("per million: brokers", "broker_cpu_per_million_at_saturation", ".2f"),
    ("agents", "agent_cpu_per_million_at_saturation", ".2f"),
    ("msg/s, few on their way", r.NARROW, ",.0f"),
    ("generator", r.GENERATOR_SHARE, ".0%"),
)
"""Column, metric and form of the table of throughputs."""

_ALONE: Final = (r.WINDOW, r.GENERATOR_SHARE)
"""Metrics that are not compared."""


def _throughput(plan: Plan, results: Results, qos: int) -> Table:
    what = f"Throughput, QoS {qos}, {plan.clients} clients, {plan.payload_bytes} B, nothing lost"
    title = f"{what}{_links(plan)}; medians of {plan.repetitions}"
    return _figures(results, qos, _SATURATED, title)


def _delays(plan: Plan, results: Results, qos: int) -> Table:
    columns = [
        column
        for rate in plan.rates
        for column in (
            (f"{rate:,}/s: p50 us", f"delay_p50_at_{rate}", ",.0f"),
            ("p99 us", f"delay_p99_at_{rate}", ",.0f"),
            ("CPU s, brokers", f"broker_cpu_at_{rate}", ".2f"),
            ("agents", f"agent_cpu_at_{rate}", ".2f"),
        )
    ]
    title = f"Delay, QoS {qos}, {plan.payload_bytes} B, {plan.seconds:g} s{_links(plan)}"
    return _figures(results, qos, columns, title)


def _figures(
    results: Results, qos: int, columns: Sequence[tuple[str, str, str]], title: str
) -> Table:
    rows = [
        (key.system, str(key.hops), *(_figure(results, key, *of) for _, *of in columns))
        for key in results.subjects()
        if key.qos == qos
    ]
    names = ("system", "hops", *(name for name, *_ in columns))
    return table_of(names, rows, title=title, title_style="bold")


def _figure(results: Results, key: Key, metric: str, pattern: str) -> str:
    value = results.median(key, metric)
    if value is None:
        return "-"
    text = format(value, pattern)
    other = r.BESIDE.get(key.system) if metric not in _ALONE else None
    ratios = results.ratios(metric, key, key._replace(system=other)) if other else []
    return f"{text} [dim]x{median(ratios):.2f}[/]" if ratios else text


_Measured = tuple[str, list[float], float, str, bool]
"""What it is, its figures, the bar for their median, their form, and whether more is better."""


def _against(title: str, bars: Iterable[_Measured]) -> Table:
    """What is wanted and what was got; what was not measured has no row."""
    rows = []
    for what, values, limit, form, at_least in bars:
        if values:
            got = median(values)
            met = got >= limit if at_least else got <= limit
            each = " ".join(format(value, form) for value in values)
            verdict = "[green]met[/]" if met else "[bold red]not met[/]"
            wanted = f"{'>=' if at_least else '<='} {limit:g}"
            rows.append((what, wanted, format(got, form), each, verdict))
    names = ("", "wanted", "got", "each", "")
    return table_of(names, rows, title=title, title_style="bold")


def _bars(results: Results) -> RenderableType:
    def measured(bar: Bar) -> _Measured:
        ours = Key(bar.system, bar.hops, bar.qos)
        ratios = results.ratios(bar.metric, ours, ours._replace(system=r.BESIDE[bar.system]))
        return bar.what, ratios, bar.wanted, ".2f", bar.at_least

    title = "Our agents beside the bridge: median of the ratios within each repetition"
    table = _against(title, map(measured, BARS))
    return table if table.row_count else Text("No bridge measured beside our agents: no ratios.")


def _notes(plan: Plan) -> Text:
    bridge = "; ".join(BRIDGE_LINES)
    windows = ", ".join(f"{window:,}" for window in plan.windows)
    return Text(
        "x: our agents over the bridge, our gateway, in the column of the agents, over the broker "
        "alone, and our agents with metrics or keys over those without; median of the ratios "
        "within each repetition. window: "
        f"messages on their way at most, for each system the best of {windows}. generator: its "
        "share of one processor; its own limit is the row 'echo'. Delays are from publisher to "
        f"subscriber. Bridge: {bridge}.",
        style="dim",
    )


THROUGHPUT_AT_LEAST: Final = {0: 0.5, 1: 0.7}
"""Of the broker alone, by QoS."""

ADDED_US_MAX: Final = 300.0
"""p50 of the gateway less that of the broker alone, at the lowest rate."""

RESIDENT_IDLE_MB_MAX: Final = 150.0


def _gateway_bars(plan: Plan, results: Results) -> Table:
    bars: list[_Measured] = []
    for qos in plan.qos:
        ours, alone = Key("gateway", 0, qos), Key("broker", 0, qos)
        what = f"throughput, QoS {qos}, over the broker alone"
        ratios = results.ratios(r.THROUGHPUT, ours, alone)
        bars.append((what, ratios, THROUGHPUT_AT_LEAST[qos], ".2f", True))
        for rate in plan.rates:
            both = (results.values(key, f"delay_p50_at_{rate}") for key in (ours, alone))
            added = [a - b for a, b in zip(*both, strict=False)]
            what = f"added p50 at {rate:,}/s, QoS {qos}, us"
            bars.append((what, added, ADDED_US_MAX, ".0f", False))
    idle = results.values(Key("gateway", 0, 0), r.RESIDENT_IDLE)
    what = f"resident memory with {r.IDLE_CLIENTS:,} idle clients, MB"
    bars.append((what, idle, RESIDENT_IDLE_MB_MAX, ".0f", False))
    return _against(f"The gateway before a broker, {plan.clients} clients", bars)

"""What a chaos run found, for people and for other programs."""

from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lab.chaos.ledger import Violation
from lab.chaos.run import Outcome
from lab.frame.printing import table_of

VIOLATIONS_SHOWN = 12


def as_json(outcome: Outcome) -> dict[str, Any]:
    plan, layout = outcome.plan, outcome.layout
    return {
        "seed": plan.seed,
        "held": outcome.held,
        "plan": {**asdict(plan), "grid": [plan.rows, plan.columns]},
        "layout": layout,
        "elapsed_s": outcome.elapsed_s,
        "classes": {
            name: {**asdict(counts), "recovery_s": _recoveries(outcome, name)}
            for name, counts in outcome.counts.items()
        },
        "skipped": outcome.skipped,
        "never_felt": outcome.never_felt,
        "schedule": outcome.happened,
        "agents": outcome.vitals,
        "violations": outcome.violations,
    }


def render(outcome: Outcome) -> RenderableType:
    parts: list[RenderableType] = [_header(outcome), _classes(outcome), _agents(outcome)]
    if len(outcome.plan.qos) > 1:
        parts.append(_swapped(outcome))
    parts += [Text(f"not tried: {name}: {why}") for name, why in outcome.skipped.items()]
    parts += [Text(f"never felt: {name}: it proved nothing", "red") for name in outcome.never_felt]
    if outcome.held:
        parts.append(Text("every promise held", "green"))
    else:
        parts.append(_violations(outcome))
    return Group(*parts)


def _header(outcome: Outcome) -> Text:
    plan, layout = outcome.plan, outcome.layout
    qos = " and ".join(map(str, plan.qos))
    return Text(
        f"seed {plan.seed}, {plan.grid.rows} x {plan.grid.columns} brokers, {plan.strategy}, "
        f"redundancy {plan.redundancy}, {plan.rate:g} msg/s QoS {qos}, "
        f"{outcome.elapsed_s:.0f} s; brokers queue {plan.broker_queue}\n"
        f"origins {_list(layout.origins)}; destinations "
        f"{_list(layout.destinations)}; relays {_list(layout.relays)}"
    )


def _list(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids)) or "none"


def _classes(outcome: Outcome) -> Table:
    names = ("fault", "runs", "felt", "tried", "delivered", "lost", "twice", "order", "alien")
    rows = []
    for name, counts in sorted(outcome.counts.items(), key=lambda item: item[0]):
        runs = [each for each in outcome.happened if each.phase == name]
        recoveries = _recoveries(outcome, name)
        stuck = sum(each.recovery_s is None for each in runs)
        felt = [was_felt for each in runs for _, was_felt in each.felt]
        failed = counts.broken(min(outcome.plan.qos)) or stuck or name in outcome.never_felt
        row = (
            name,
            str(len(runs)),
            f"{sum(felt)}/{len(felt)}",
            str(counts.attempted),
            str(counts.delivered),
            _bad(counts.lost),
            _bad(counts.twice),
            _bad(counts.order),
            _bad(counts.unexpected),
            f"{counts.spared_lost}+{counts.spared_twice}",
            f"{counts.slowest_s:.1f} s",
            f"{recoveries[len(recoveries) // 2]:.1f} s" if recoveries else "-",
            "never" if stuck else f"{recoveries[-1]:.1f} s" if recoveries else "-",
            "[red]FAILED[/]" if failed else "[green]ok[/]",
        )
        rows.append(row)
    return table_of((*names, "spared", "slowest", "recovery", "max", ""), rows)


def _swapped(outcome: Outcome) -> Text:
    counts = outcome.counts.values()
    swapped, of = sum(c.swapped for c in counts), sum(c.delivered_mixed for c in counts)
    return Text(f"to subscribers of QoS 2, not judged: {swapped:,} of {of:,} out of order")


def _recoveries(outcome: Outcome, name: str) -> list[float]:
    found = (e.recovery_s for e in outcome.happened if e.phase == name)
    return sorted(each for each in found if each is not None)


def _bad(count: int) -> str:
    return f"[red]{count}[/]" if count else "0"


def _agents(outcome: Outcome) -> Table:
    names = ("agent", "MiB 2nd quarter", "MiB last", "files", "last", "log lines/s", "")
    rows = [
        (
            str(vital.agent),
            f"{vital.resident_kib_second_quarter / 1024:.1f}",
            f"{vital.resident_kib_last_quarter / 1024:.1f}",
            f"{vital.files_second_quarter:.0f}",
            f"{vital.files_last_quarter:.0f}",
            f"{vital.log_lines_per_s:.2f}",
            f"[red]{escape(vital.faults[0])}[/]" if vital.faults else "",
        )
        for vital in outcome.vitals
    ]
    return table_of(names, rows)


def _violations(outcome: Outcome) -> Text:
    text = Text(f"{len(outcome.violations)} violations remembered\n", "bold red")
    for each in outcome.violations[:VIOLATIONS_SHOWN]:
        text.append(f"  {_line(each)}\n", "not bold red")
    first_s = outcome.violations[0].at_s if outcome.violations else 0.0
    text.append("schedule until the first:\n", "bold")
    for happened in outcome.happened:
        if happened.began_s > first_s:
            break
        recovery = "never" if happened.recovery_s is None else f"{happened.recovery_s:.1f} s"
        text.append(
            f"  {happened.began_s:8.1f} s  {happened.what}; healed {happened.healed_s:.1f} s, "
            f"recovered {recovery}\n",
            "not bold",
        )
    return text


def _line(violation: Violation) -> str:
    where = f"{violation.topic} #{violation.number}" if violation.topic else ""
    parts = (f"{violation.at_s:8.1f} s", violation.kind, violation.where, where, violation.detail)
    return "  ".join(part for part in (*parts, f"[{violation.phase}]") if part)

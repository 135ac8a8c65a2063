"""Strategies of routing side by side, as tables; and the completion times of ``chen2020``."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from federator.protocol.parameters import Strategy
from lab.frame.line_chart import line_chart, stacked
from lab.frame.printing import table_of
from lab.grid.scenario import Arrangement
from lab.grid.trial import (
    BOTH,
    CHEN2020,
    Completion,
    Progress,
    Setting,
    TrialOutcome,
    completion_of,
    is_faster,
    knee,
    path_of,
    run_trial,
)

ADDED_MS_PER_HOP_MAX: Final = 1.5
"""What shortest-path may add to the floor for each hop."""

_MEASURES: Final[tuple[tuple[str, Callable[[TrialOutcome], str]], ...]] = (
    ("mean delay over all pairs, ms", lambda o: f"[bold]{o.delay_ms:.2f}[/]"),
    ("  floor: the links' delays, ms", lambda o: f"{o.floor_ms:.2f}"),
    ("  added per hop, ms", lambda o: f"{o.added_ms_per_hop:.2f}"),
    ("  worst 99th percentile of a pair, ms", lambda o: f"{o.worst_p99_ms:.2f}"),
    ("data messages per publication", lambda o: f"[bold]{o.data_per_publication:.2f}[/]"),
    ("control messages until all was routed", lambda o: str(o.settling_messages)),
    ("  per second after that, without hellos", lambda o: f"{o.control_messages / o.seconds:.1f}"),
    ("state: entries per agent", lambda o: f"{o.state.total:.1f}"),
    ("  cores", lambda o: f"{o.state.cores:.1f}"),
    ("  filters with a mesh", lambda o: f"{o.state.filters:.1f}"),
    ("  children", lambda o: f"{o.state.children:.1f}"),
    ("  destinations", lambda o: f"{o.state.destinations:.1f}"),
)

_FIGURES: Final = (
    *("delay_ms", "floor_ms", "added_ms_per_hop", "worst_p99_ms", "publications"),
    *("data_per_publication", "control_messages", "seconds", "settling_messages"),
)
"""What is told as JSON as it is."""


def settings(strategy: str, redundancy: int) -> tuple[Setting, ...]:
    """What ``--strategy`` means. Meshes are shown with one parent, too: these send the least."""
    found = []
    if strategy != Strategy.SHORTEST_PATH:
        found = [
            Setting(f"mesh, redundancy {parents}", Strategy.MESH, parents)
            for parents in sorted({1, redundancy})
        ]
    if strategy != Strategy.MESH:
        found.append(Setting("shortest path", Strategy.SHORTEST_PATH, redundancy))
    return tuple(found)


async def compare(
    trials: Iterable[tuple[Arrangement, Setting]], folder: Path, *, progress: Progress
) -> list[TrialOutcome]:
    found = []
    for number, (arrangement, setting) in enumerate(trials):
        inside = folder / str(number)
        inside.mkdir(parents=True, exist_ok=True)
        found.append(await run_trial(arrangement, setting, inside, progress=progress))
    return found


def completing(arrangement: Arrangement) -> list[tuple[Arrangement, Setting]]:
    """``chen2020``: the long path, then the short one, with a subscriber at each broker on it."""
    return [
        (replace(arrangement, subscribers=path_of(setting), local=True), setting)
        for setting in BOTH
    ]


def bars(outcomes: Sequence[TrialOutcome]) -> list[tuple[str, bool]]:
    """What shortest-path promises against the floor and the leanest mesh; whether it keeps it."""
    found: list[tuple[str, bool]] = []
    leanest = [o for o in outcomes if o.setting.strategy is Strategy.MESH][:1]
    for straight in outcomes:
        if straight.setting.strategy is not Strategy.SHORTEST_PATH:
            continue
        added = straight.added_ms_per_hop
        text = f"adds {added:.2f} ms per hop to the floor, at most {ADDED_MS_PER_HOP_MAX} wanted"
        found.append((f"shortest path {text}", added <= ADDED_MS_PER_HOP_MAX))
        for mesh in leanest:
            mine, its = straight.data_per_publication, mesh.data_per_publication
            text = f"{mine:.2f} data messages per publication, at most {its:.2f} wanted"
            found.append((f"shortest path sends {text}: {mesh.setting.name}", mine <= its))
    return found


def faults(outcomes: Sequence[TrialOutcome]) -> list[str]:
    lost = [f"{o.setting.name}: {fault}" for o in outcomes for fault in o.faults]
    return lost + [f"missed: {text}" for text, kept in bars(outcomes) if not kept]


def render(outcomes: Sequence[TrialOutcome]) -> RenderableType:
    first = outcomes[0]
    table = table_of(
        ("", *(outcome.setting.name for outcome in outcomes)),
        ((name, *(cell(outcome) for outcome in outcomes)) for name, cell in _MEASURES),
        title=f"{len(first.pairs)} pairs, {first.publications} publications",
    )
    lines = [f"{'met' if kept else 'MISSED'}: {text}" for text, kept in bars(outcomes)]
    lines += [f"fault: {o.setting.name}: {fault}" for o in outcomes for fault in o.faults]
    good = not faults(outcomes)
    end = "Nothing lost, nothing twice, in order" if good else ""
    return Group(table, Text("\n".join([*lines, end]), "green" if good else "bold red"))


def as_json(outcomes: Sequence[TrialOutcome]) -> dict[str, Any]:
    return {
        "settings": [
            {
                "name": o.setting.name,
                "strategy": o.setting.strategy.value,
                "redundancy": o.setting.redundancy,
                **{name: getattr(o, name) for name in _FIGURES},
                "state": {**asdict(o.state), "total": o.state.total},
                "pairs": [asdict(pair) for pair in o.pairs],
            }
            for o in outcomes
        ],
        "faults": faults(outcomes),
        "ok": not faults(outcomes),
    }


def completions(outcomes: Sequence[TrialOutcome]) -> tuple[Completion, Completion]:
    long, short = (completion_of(outcome, CHEN2020.step) for outcome in outcomes)
    return long, short


def completion_faults(outcomes: Sequence[TrialOutcome]) -> list[str]:
    long, short = completions(outcomes)
    found = [f"{o.setting.name}: {fault}" for o in outcomes for fault in o.faults]
    if not is_faster(short, long):
        found.append("the shortest path is not faster at every size")
    return found


def render_completion(outcomes: Sequence[TrialOutcome]) -> RenderableType:
    long, short = completions(outcomes)
    names = ["items"]
    for place in ("consumer", "edge router", "average"):
        names += [f"{place}, long", "short"]
    rows = []
    for size in short.consumer:
        cells = zip(astuple(long), astuple(short), strict=True)
        rows.append((f"{size:,}", *(f"{each[size] / 1000:.2f}" for pair in cells for each in pair)))
    title = "Completion time, s: on the long path, and on the shortest"
    table = table_of(names, rows, title=title)
    lines = []
    for o in outcomes:
        path = "-".join(map(str, path_of(o.setting)))
        each = f"{o.data_per_publication:.2f} data messages per item"
        lines.append(f"{o.setting.name}: {path}, {each}")
    for o, times in zip(outcomes, (long, short), strict=True):
        bend = knee(times.average)
        lines.append(
            f"{o.setting.name}: {'no knee' if bend is None else f'knee at {bend:,} items'}"
        )
    found = completion_faults(outcomes)
    verdict = [f"fault: {each}" for each in found] or ["The shortest path is faster at every size"]
    colour = "bold red" if found else "green"
    return Group(table, Text("\n".join(lines)), Text("\n".join(verdict), colour))


def completion_chart(outcomes: Sequence[TrialOutcome]) -> str:
    long, short = completions(outcomes)

    def chart(where: str, place: str) -> str:
        curves = {
            name: {float(size): ms / 1000 for size, ms in getattr(each, place).items()}
            for name, each in (("without", long), ("shortest path", short))
        }
        return line_chart(f"Completion time {where}", "items", "seconds", curves)

    charts = [chart("at the consumer", "consumer"), chart("on average over the path", "average")]
    return stacked([*charts, chart("at the edge router", "edge_router")])


def completion_json(outcomes: Sequence[TrialOutcome]) -> dict[str, Any]:
    long, short = completions(outcomes)
    found = completion_faults(outcomes)
    told = [
        {
            "name": outcome.setting.name,
            "path": path_of(outcome.setting),
            "data_per_item": outcome.data_per_publication,
            "completed_ms": asdict(each),
            "knee": knee(each.average),
        }
        for outcome, each in zip(outcomes, (long, short), strict=True)
    ]
    return {"settings": told, "faults": found, "ok": not found}

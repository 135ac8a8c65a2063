"""An outcome for people, as tables beside the paper's, and for machines, as one JSON object."""

from collections.abc import Collection, Iterable
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from federator.protocol.types import BrokerId
from lab.frame.printing import table_of
from lab.grid.measure import Named, Outcome
from lab.grid.scenario import Published, Scenario
from lab.grid.topology import Grid, Mesh
from lab.grid.trial import Delivery

WIDE_COLUMNS = 100
_OF_SCENARIO = (
    *("link_delay_ms", "redundancy", "subscribers", "publisher", "payload_bytes"),
    *("gap_ms", "qos"),
)
"""What is told as JSON as it is."""


def render(outcome: Outcome, *, columns: int) -> RenderableType:
    """All but the mesh, for a terminal of ``columns``; 80 will do, more show more."""
    wide = columns >= WIDE_COLUMNS
    scenario = outcome.scenario
    title = "Table 2. Federated: publication delay, ms"
    parts: list[RenderableType] = [_table(title, outcome.federated, scenario, wide=wide)]
    if outcome.centralised:
        title = "Table 3. One broker, both subscribers beside it: publication delay, ms"
        parts += [Text(), _table(title, outcome.centralised, scenario, wide=wide)]
    parts += [Text(), _control(outcome), Text(), _verdict(outcome)]
    return Group(*parts)


def render_mesh(scenario: Scenario, mesh: Mesh, relayed_to: Collection[BrokerId]) -> Text:
    wanted, publisher = scenario.subscribers, scenario.publisher
    picture = draw(scenario.grid, mesh, subscribers=wanted, publisher=publisher)
    members = " ".join(str(member) for member in sorted(mesh.members))
    parents = " ".join(
        f"{here}:{{{','.join(str(parent) for parent in mesh.parents[here])}}}"
        for here in sorted(mesh.members)
        if here != mesh.core
    )
    lines = [*("  " + line for line in picture), "", f"  {LEGEND}"]
    lines.append(f"  core {mesh.core}; members {members}; parents {parents}")
    if publisher not in mesh.members:
        relayed = " ".join(str(hop) for hop in relayed_to)
        lines.append(f"  {publisher} is no member and relays to {relayed}")
    text = Text(f"The mesh, redundancy {scenario.redundancy}\n", style="bold")
    text.append("\n".join(lines), style="not bold")
    return text


def as_json(outcome: Outcome) -> dict[str, Any]:
    scenario = outcome.scenario
    counts = outcome.announcements
    return {
        "scenario": scenario.name,
        **asdict(scenario.grid),
        **{name: getattr(scenario, name) for name in _OF_SCENARIO},
        "mesh": {
            "core": outcome.mesh.core,
            "members": sorted(outcome.mesh.members),
            "parents": {str(k): list(v) for k, v in sorted(outcome.mesh.parents.items())},
            "publisher_relays_to": list(outcome.relayed_to),
        },
        "federated": [_row(*each, _paper(*each, scenario)) for each in outcome.federated],
        "centralised": [_row(*each, _paper(*each, scenario)) for each in outcome.centralised],
        "announcements": None
        if counts is None
        else {**asdict(counts), "per_announcement": counts.per_announcement},
        "control_sent": outcome.control_sent,
        "faults": outcome.faults,
        "ok": not outcome.faults,
    }


def _row(name: str, delivery: Delivery, paper: Published | None) -> dict[str, Any]:
    return {
        "publications": delivery.arrivals.sent,
        "broker": delivery.subscriber,
        "subscriber": name,
        "hops": delivery.hops,
        "floor_ms": delivery.floor_ms,
        "paper_ms": None if paper is None else paper.delay_ms,
        "paper_deviation_ms": None if paper is None else paper.deviation_ms,
        **{k: v for k, v in asdict(delivery.arrivals).items() if k != "delays"},
        "added_ms": delivery.added_ms,
        "added_per_hop_ms": delivery.added_per_hop_ms,
        "lost": delivery.arrivals.lost,
    }


def _paper(name: str, delivery: Delivery, scenario: Scenario) -> Published | None:
    key = (delivery.arrivals.sent, delivery.subscriber)
    if name in ("A", "B"):
        both = scenario.centralised_ms.get(key)
        return None if both is None else both["AB".index(name)]
    return scenario.federated_ms.get(key)


def _table(title: str, deliveries: Iterable[Named], scenario: Scenario, *, wide: bool) -> Table:
    distribution = ("p50", "p99", "max") if wide else ("p99",)
    columns = ("publ", "at", "hops", "floor", "paper", "ours", *distribution, "added", "/hop")
    rows = []
    for name, delivery in deliveries:
        paper = _paper(name, delivery, scenario)
        got = delivery.arrivals
        quantiles = (got.delay_ms_p50, got.delay_ms_p99, got.delay_ms_max)
        row = (
            str(got.sent),
            f"{delivery.subscriber} {name}" if name in ("A", "B") else name,
            str(delivery.hops),
            f"{delivery.floor_ms:g}",
            "-" if paper is None else f"{paper.delay_ms:.2f} ±{paper.deviation_ms:.2f}",
            f"[bold]{got.delay_ms_mean:.2f}[/] ±{got.delay_ms_deviation:.2f}",
            *(f"{each:.2f}" for each in (quantiles if wide else quantiles[1:2])),
            f"{delivery.added_ms:.2f}",
            f"{delivery.added_per_hop_ms:.2f}",
            *(_count(n) for n in (got.lost, got.duplicates, got.disordered)),
        )
        rows.append(row)
    how = {"title": title, "title_style": "bold", "padding": 0}
    return table_of((*columns, "lost", "twice", "order"), rows, **how)


def _count(number: int) -> str:
    return f"[bold red]{number}[/]" if number else "0"


def _control(outcome: Outcome) -> Text:
    counts = outcome.announcements
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.control_sent.items()))
    total = f"  sent since the start by all agents: {kinds}"
    if counts is None:
        return Text(f"Control:\n{total}")
    return Text(
        f"Control: {counts.per_announcement:.1f} messages per core announcement "
        f"({counts.messages} for {counts.count});\n"
        f"  one flood takes {counts.flood}, the paper's bound 2l is {counts.bound}\n{total}"
    )


def _verdict(outcome: Outcome) -> Text:
    if not outcome.faults:
        return Text("Nothing lost, nothing twice, in order; the mesh is the expected one", "green")
    return Text("\n".join(f"fault: {fault}" for fault in outcome.faults), style="bold red")


LEGEND = "◉ core  ● has subscribers  ○ connects  · no member  S, P clients  ▶ parent"

_Marks = dict[bool | None, tuple[str, ...]]
"""Forth and back to a parent, from a member of the mesh or not; ``None``: neither is a parent."""

_ACROSS: _Marks = {True: ("━━━▶", "◀━━━"), False: ("───▷", "◁───"), None: ("────",)}
_DOWN: _Marks = {True: ("▼", "▲"), False: ("▽", "△"), None: ("│",)}


def draw(
    grid: Grid, mesh: Mesh, *, subscribers: Collection[BrokerId], publisher: BrokerId
) -> list[str]:
    def label(here: BrokerId) -> str:
        mark = "·"
        if here == mesh.core:
            mark = "◉"
        elif here in mesh.members:
            mark = "●" if here in subscribers else "○"
        clients = ("S" if here in subscribers else "") + ("P" if here == publisher else "")
        return f"{mark} {here} {clients}".rstrip()

    width = max(len(label(here)) for here in grid.ids)
    lines = []
    for row in range(grid.rows):
        ids = grid.ids[row * grid.columns : (row + 1) * grid.columns]
        line = label(ids[0]).ljust(width)
        for left, right in pairwise(ids):
            line += f" {_drawn(mesh, left, right, _ACROSS)} {label(right).ljust(width)}"
        lines.append(line.rstrip())
        if row + 1 < grid.rows:
            below = [_drawn(mesh, id, BrokerId(id + grid.columns), _DOWN) for id in ids]
            lines.append("".join(mark.ljust(width + 6) for mark in below).rstrip())
    return lines


def _drawn(mesh: Mesh, one: BrokerId, other: BrokerId, marks: _Marks) -> str:
    if other in mesh.parents.get(one, ()):
        return marks[one in mesh.members][0]
    if one in mesh.parents.get(other, ()):
        return marks[other in mesh.members][1]
    return marks[None][0]

"""What one call of ``federator-lab grid`` is to do, as its options say together."""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from federator.cli.options import FOLDER
from federator.protocol.parameters import Strategy
from lab.cli.grid.strategies import settings
from lab.frame.settings import numbers, setting
from lab.grid.measure import Measurement
from lab.grid.reporting import (
    PAGE,
    Copies,
    broker_legs_us,
    check_analytics,
    compare,
    gather_spools,
    make_report,
    write_clients,
)
from lab.grid.running import FEDERATION, RunningGrid
from lab.grid.scenario import PRESETS, Arrangement, Scenario, default_scenario
from lab.grid.topology import Grid
from lab.grid.trial import CHEN2020, ITEMS, STEP, Setting

AGENT_OPTIONS: Final[dict[str, dict[str, Any]]] = {"metrics": {"enabled": True, "sample": 10}}
"""For agents whose records are wanted. A grid's traffic is thin: one frame in ten is followed."""


@dataclass(frozen=True, slots=True)
class Records:
    """Where records go, and the report of them."""

    folder: Path  # for the records
    report: Path | None  # for tables and page; ``None``: no report is wanted

    @classmethod
    def wanted(cls, metrics: Path | None, report: str | None) -> "Records | None":
        """What the options ask for.

        Raises:
            click.UsageError: A folder holds something already.
            LinkError: Reports cannot be made here.
        """
        if metrics is None and report is None:
            return None
        place: Path | None = None
        if report is not None:
            check_analytics()
            place = Path(report or tempfile.mkdtemp(prefix="federator-report-")).resolve()
        folder = metrics.resolve() if metrics is not None else (place or Path()) / "records"
        for option, each in (("--metrics", metrics), ("--report", place)):
            if each is not None and each.is_dir() and any(each.iterdir()):
                raise click.UsageError(f"{option} {each}: is not empty; name another folder")
            if each is not None and each.exists() and not each.is_dir():
                raise click.UsageError(f"{option} {each}: is a file; name a folder")
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, place)

    def keep(self, running: RunningGrid, measurement: Measurement) -> None:
        gather_spools((agent.state_dir for agent in running.agents.values()), self.folder)
        write_clients(measurement.runs, self.folder, federation=FEDERATION)

    async def tell(self, measurement: Measurement, copies: Copies | None, console: Console) -> bool:
        """Make the report, hold it against what was measured, say where it is; whether it agrees.

        Raises ``LinkError``: the report could not be made.
        """
        if self.report is None or copies is None:
            console.print(f"records: {self.folder}", soft_wrap=True, highlight=False)
            return True
        console.print("making the report ...", highlight=False)
        summary = await make_report(self.folder, self.report)
        found = compare(summary, measurement.runs, copies, broker_legs_us(self.folder))
        for finding in found:
            text = finding.text if finding.agrees else f"fault: {finding.text}: they differ"
            console.print(text, style=None if finding.agrees else "bold red", highlight=False)
        console.print(f"report: {self.report / PAGE}", soft_wrap=True, highlight=False)
        return all(finding.agrees for finding in found)


CHEN2020_NAME: Final = "chen2020"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is done with the grid."""

    preset: str | None = setting(
        None, "An evaluation from the papers.", among=sorted((*PRESETS, CHEN2020_NAME))
    )
    strategy: str | None = setting(
        None,
        "Measure this routing, or both side by side: delay, messages, state.",
        among=[*(each.value for each in Strategy), "both"],
    )
    all_pairs: bool = setting(
        default=False, about="With --strategy: every broker subscribes and publishes."
    )
    plot: Path | None = setting(
        None, "With --preset chen2020: draw the completion times here, as SVG."
    )
    auto: int | None = setting(
        None,
        "N brokers join through one and arrange their links; then the one is killed.",
        least=3,
        most=40,
        form="N",
    )
    stay: bool = setting(
        default=False,
        about="Keep the grid up until Ctrl-C. Measures first only when --publications is given.",
    )
    state: Path | None = setting(
        None, "Once the grid is ready, write its ports, pids and links here, as JSON."
    )
    metrics: Path | None = setting(
        None, "Have agents and clients write what they measure into this folder.", kind=FOLDER
    )


@dataclass(frozen=True, slots=True)
class Trial:
    """Strategies side by side, or with no settings the completion times of ``chen2020``."""

    arrangement: Arrangement
    settings: tuple[Setting, ...]
    plot: Path | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What one call of the verb does."""

    scenario: Scenario
    trial: Trial | None
    with_clients: bool
    measure: bool
    stay: bool
    state: Path | None
    as_json: bool
    records: Records | None


def span(text: str) -> tuple[float, float]:
    least, _, most = text.partition("-")
    try:
        return float(least), float(most or least)
    except ValueError:
        raise ValueError("50-100 or 75 wanted") from None


@dataclass(frozen=True, slots=True)
class Changes:
    """What of a scenario can be asked for; ``Scenario`` has the same fields, but for the shape."""

    rows: int = setting(3, "Rows of brokers.", 1, 20)
    cols: int = setting(3, "Columns of brokers.", 1, 20)
    first_id: int = setting(0, "Id of the first broker.", 0)
    link_delay_ms: float = setting(5, "Of every link.", 0, 10_000)
    redundancy: int = setting(2, "Parents per broker.", 1, 8)
    subscribers: tuple[int, ...] | None = setting(
        None, "Brokers with a subscriber.", parse=numbers, form="ID[,ID]"
    )
    publisher: int | None = setting(None, "Broker with the publisher.")
    publications: tuple[int, ...] = setting("500", "Of each run.", parse=numbers, form="N[,N]")
    gap_ms: tuple[float, float] = setting(
        "50-100", "Between publications; 0: one after another.", parse=span, form="MIN-MAX"
    )
    payload_bytes: int = setting(64, "Of each publication.")
    qos: int = setting(0, "Of publications and subscriptions.", 0, 2)


def trial_of(asked: Asked, options: dict[str, Any]) -> Trial:
    """What is measured side by side.

    Raises ``click.UsageError``: the options do not go together.
    """
    preset, strategy = asked.preset, asked.strategy
    if preset != CHEN2020_NAME:
        if asked.plot is not None:
            raise click.UsageError("--plot wants --preset chen2020")
        scenario = scenario_of(preset, options)
        arrangement = _paired(scenario, all_pairs=asked.all_pairs)
        return Trial(arrangement, settings(strategy or "both", scenario.redundancy), None)
    names = ("link_delay_ms", "payload_bytes", "qos", "gap_ms")
    changes = {name: options[name] for name in names if name in options}
    _refuse(preset, ("rows", "cols", "first_id", "subscribers", "publisher"), options)
    items = options.get("publications", (ITEMS,))[0]
    arrangement = _paired(replace(CHEN2020, **changes, runs=(items,)), all_pairs=asked.all_pairs)
    if strategy is not None:
        return Trial(arrangement, settings(strategy, options.get("redundancy", 2)), None)
    if asked.all_pairs or items < STEP:
        raise click.UsageError(f"--preset chen2020 has one pair, and {STEP} items at least")
    return Trial(arrangement, (), asked.plot)


def _paired(arrangement: Arrangement, *, all_pairs: bool) -> Arrangement:
    """Every publisher with every subscriber elsewhere; ``all_pairs``: every broker is both."""
    ids = arrangement.grid.ids
    here, there = (ids, ids) if all_pairs else (arrangement.publishers, arrangement.subscribers)
    return replace(arrangement, publishers=here, subscribers=there, local=False)


def _refuse(preset: str, names: Iterable[str], options: dict[str, Any]) -> None:
    for name in names:
        if name in options:
            raise click.UsageError(f"--preset {preset} has its own --{name.replace('_', '-')}")


def scenario_of(preset: str | None, options: dict[str, Any]) -> Scenario:
    """The preset or the default, with what the options change.

    Raises ``click.UsageError``: the options do not go together.
    """
    try:
        shape = ("rows", "cols", "first_id")
        given = dict(options)
        if preset is None:
            rows, cols, first_id = (given.pop(name, None) for name in shape)
            base = default_scenario(Grid(rows or 3, cols or 3, first_id or 0))
        else:
            base = PRESETS[preset]
            _refuse(preset, shape, options)
        changes = {"runs" if k == "publications" else k: value for k, value in given.items()}
        if "publisher" in changes:
            changes["publishers"] = (changes.pop("publisher"),)
        changed = replace(base, **changes)
        if {"redundancy", "subscribers"} & set(changes):
            changed = replace(changed, parents={})  # the source's mesh is another one
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return changed

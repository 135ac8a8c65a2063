"""What one call of ``federator-lab grid`` is to do, as its options say together."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from lab.cli.grid.report import Records
from lab.cli.grid.strategies import settings
from lab.grid.completion import CHEN2020, ITEMS, STEP, TESTBED
from lab.grid.scenario import PRESETS, Scenario, default_scenario
from lab.grid.topology import Grid
from lab.grid.trial import Arrangement, Setting

CHEN2020_NAME: Final = "chen2020"


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


def span(
    context: click.Context, option: click.Parameter, text: str | None
) -> tuple[float, float] | None:
    """A span written as ``50-100``, or as one number for both ends."""
    if text is None:
        return None
    least, _, most = text.partition("-")
    try:
        return float(least), float(most or least)
    except ValueError:
        raise click.BadParameter(f"{text!r}: 50-100 or 75 wanted", context, option) from None


def trial_of(
    preset: str | None,
    strategy: str | None,
    all_pairs: bool,
    plot: Path | None,
    options: dict[str, Any],
) -> Trial:
    """What is measured side by side.

    Raises:
        click.UsageError: The options do not go together.
    """
    if preset != CHEN2020_NAME:
        if plot is not None:
            raise click.UsageError("--plot wants --preset chen2020")
        scenario = scenario_of(preset, options)
        arrangement = Arrangement.of(scenario, all_pairs=all_pairs)
        return Trial(arrangement, settings(strategy or "both", scenario.redundancy), None)
    names = ("link_delay_ms", "payload_bytes", "qos", "gap_ms")
    changes = {name: options[name] for name in names if options[name] is not None}
    _refuse(preset, ("rows", "cols", "first_id", "subscribers", "publisher"), options)
    items = (options["publications"] or (ITEMS,))[0]
    ids = TESTBED.ids
    changes |= {"subscribers": ids, "publishers": ids} if all_pairs else {}
    arrangement = replace(CHEN2020, **changes, publications=items)
    if strategy is not None:
        return Trial(arrangement, settings(strategy, options["redundancy"] or 2), None)
    if all_pairs or items < STEP:
        raise click.UsageError(f"--preset chen2020 has one pair, and {STEP} items at least")
    return Trial(arrangement, (), plot)


def _refuse(preset: str, names: Iterable[str], options: dict[str, Any]) -> None:
    """Refuse options that ``preset`` says itself."""
    for name in names:
        if options[name] is not None:
            raise click.UsageError(f"--preset {preset} has its own --{name.replace('_', '-')}")


def scenario_of(preset: str | None, options: dict[str, Any]) -> Scenario:
    """The preset or the default, with what the options change.

    Raises:
        click.UsageError: The options do not go together.
    """
    try:
        shape = ("rows", "cols", "first_id")
        given = {name: value for name, value in options.items() if value is not None}
        if preset is None:
            rows, cols, first_id = (given.pop(name, None) for name in shape)
            base = default_scenario(Grid(rows or 3, cols or 3, first_id or 0))
        else:
            base = PRESETS[preset]
            _refuse(preset, shape, options)
        changes = {"runs" if k == "publications" else k: value for k, value in given.items()}
        changed = replace(base, **changes)
        if {"redundancy", "subscribers"} & set(changes):
            changed = replace(changed, parents={})  # the source's mesh is another one
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return changed

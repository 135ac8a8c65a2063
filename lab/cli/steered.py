"""``federator-lab steered``: a demand that fits on narrow links, with a steerer and without one."""

import shutil
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import click
import uvloop

from federator.cli.options import FILE, FOLDER, json_option, option
from lab.cli.common import fields_of, new_folder, tell, until_stopped
from lab.steered.drawing import picture
from lab.steered.run import CAPACITY, SteeredRun
from lab.steered.verdicts import Verdict, verdicts

FAILED = 1


def told(verdicts: Iterable[Verdict], found: Mapping[str, object], *, as_json: bool) -> bool:
    """Print what was to be shown, and whether it was; whether all was.

    As JSON with ``found``, which is what was measured.
    """
    judged = list(verdicts)
    held = all(verdict.held for verdict in judged)
    lines = (f"{'ok  ' if each.held else 'MISSED'}  {each.text}" for each in judged)
    tell(lines, {"held": held, "verdicts": judged, **found}, as_json=as_json)
    return held


def left(folder: Path, keep: Path | None, *, held: bool, as_json: bool) -> int:
    """Take the run's folder away, unless it is to be kept or read; the exit code."""
    if held and keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        click.echo(f"logs: {folder}", err=as_json)
    return 0 if held else FAILED


@click.command(name="steered")
@option("--seconds", type=click.FloatRange(5, 600), default=20.0, help="Of each spell.")
@option("--turns", type=click.IntRange(1, 20), default=2, help="Without, then steered; so often.")
@click.option("--svg", type=FILE, help="Draw the links before and after.")
@click.option("--keep", type=FOLDER, help="Keep configurations and logs in this new folder.")
@json_option
def command(seconds: float, turns: int, svg: Path | None, keep: Path | None, as_json: bool) -> int:
    """Overload a link of six real brokers by shortest paths, and see what steering makes of it.

    Exits 0 when everything wanted was shown, 1 otherwise.
    """
    folder = new_folder(keep, verb="steered")
    progress = partial(click.echo, err=as_json)
    run = SteeredRun(folder, seconds=seconds, turns=turns, progress=progress)
    ended = uvloop.run(until_stopped(run.run(), name="steered"))
    found = {"capacity_bit_per_s": CAPACITY, **fields_of(ended)}
    held = told(verdicts(ended), found, as_json=as_json)
    if svg is not None:
        svg.write_text(picture(ended), encoding="utf-8")
        click.echo(f"drawn: {svg}", err=as_json)
    return left(folder, keep, held=held, as_json=as_json)

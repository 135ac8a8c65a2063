"""``federator-lab steered``: a demand that fits on narrow links, with a steerer and without one."""

import shutil
import signal
from collections.abc import Iterable
from pathlib import Path

import click
import uvloop

from federator.cli.options import FILE, FOLDER, option
from lab.cli.common import new_folder, until_stopped
from lab.steered.drawing import picture
from lab.steered.run import SteeredRun
from lab.steered.verdicts import Verdict, verdicts

FAILED = 1


def told(verdicts: Iterable[Verdict]) -> bool:
    """Print what was to be shown, and whether it was; whether all was."""
    found = list(verdicts)
    for verdict in found:
        click.echo(f"{'ok  ' if verdict.held else 'MISSED'}  {verdict.text}")
    return all(verdict.held for verdict in found)


def left(folder: Path, keep: Path | None, *, held: bool) -> int:
    """Take the run's folder away, unless it is to be kept or read; the exit code."""
    if held and keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        click.echo(f"logs: {folder}")
    return 0 if held else FAILED


@click.command(name="steered")
@option("--seconds", type=click.FloatRange(5, 600), default=20.0, help="Of each spell.")
@option("--turns", type=click.IntRange(1, 20), default=2, help="Without, then steered; so often.")
@click.option("--svg", type=FILE, help="Draw the links before and after.")
@click.option("--keep", type=FOLDER, help="Keep configurations and logs in this new folder.")
def command(seconds: float, turns: int, svg: Path | None, keep: Path | None) -> int:
    """Overload a link of six real brokers by shortest paths, and see what steering makes of it.

    Exits 0 when everything wanted was shown, 1 otherwise.
    """
    folder = new_folder(keep, verb="steered")
    run = SteeredRun(folder, seconds=seconds, turns=turns, progress=click.echo)
    ended = uvloop.run(until_stopped(run.run(), name="steered"))
    if isinstance(ended, signal.Signals):
        return 128 + ended
    held = told(verdicts(ended))
    if svg is not None:
        svg.write_text(picture(ended), encoding="utf-8")
        click.echo(f"drawn: {svg}")
    return left(folder, keep, held=held)

"""Ctrl-C, a clock and a progress bar for a solver.

The first Ctrl-C asks for the best so far; the second one ends at once.
"""

import math
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from federator.planner.flow.watch import Progress, Watch


@dataclass(slots=True)
class Interruption:
    """Whether Ctrl-C was pressed."""

    happened: bool = False

    @property
    def exit_code(self) -> int:
        """What shells say of a program that Ctrl-C ended, or 0."""
        return 128 + signal.SIGINT if self.happened else 0


@contextmanager
def interruption() -> Iterator[Interruption]:
    """Turns the first Ctrl-C into a note."""
    noted = Interruption()

    def note(number: int, frame: FrameType | None) -> None:
        noted.happened = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def watch(what: str, *, time_limit_s: float, noted: Interruption, quiet: bool) -> Iterator[Watch]:
    """A watch that draws its progress on standard error, if that is a terminal."""
    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[found]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=quiet or not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(what, total=1.0, found="")

        def report(progress: Progress) -> None:
            found = f"cost {progress.cost:g}" if math.isfinite(progress.cost) else ""
            if math.isfinite(progress.lower_bound):
                found += f" bound {progress.lower_bound:g}"
            bar.update(task, completed=progress.share, found=found)

        yield Watch(
            seconds=time.monotonic,
            time_limit_s=time_limit_s,
            interrupted=lambda: noted.happened,
            report=report,
            started_s=time.monotonic(),
        )

"""What several verbs share: folders, bars, what is printed, and an orderly end."""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click
import structlog
from pydantic_core import to_json
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


FAILED = 1
_Outcome = TypeVar("_Outcome")


async def until_stopped(work: Coroutine[Any, Any, _Outcome], *, name: str) -> _Outcome:
    """Carry out ``work``; the first signal cancels it, later ones do not interrupt the clean-up.

    So SIGINT and SIGTERM leave no process and no mount behind.

    Raises ``click.exceptions.Exit``: a signal ended it; the program ends as the shell expects.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work, name=name)
    received: list[signal.Signals] = []

    def stop(which: signal.Signals) -> None:
        if not received:
            received.append(which)
            task.cancel()

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop, each)
    try:
        return await task
    except asyncio.CancelledError:
        if not received:
            raise
        raise click.exceptions.Exit(128 + received[0]) from None


@contextlib.contextmanager
def folder_for(kept: Path | None, *, verb: str) -> Iterator[Path]:
    """The folder that is to be kept, made if missing; else one that goes away in the end."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix=f"federator-{verb}-") as folder:
        yield Path(folder)


def log_to_standard_error() -> None:
    """What our own clients log is not what a verb prints."""
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


def log_nothing() -> None:
    """Clients of a verb log what happens to them by thousands."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def bars_table(title: str, bars: "Iterable[Bar]") -> Table:
    rows = [(bar.what, bar.wanted, bar.got, "yes" if bar.met else "NO") for bar in bars]
    return table_of(("", "wanted", "got", "met"), rows, title=title)


@dataclass(frozen=True, slots=True)
class Bar:
    """One thing that is wanted of a measurement, and whether it was got."""

    what: str
    wanted: str
    got: str
    met: bool


def table_of(columns: Iterable[str], rows: Iterable[Sequence[str]], **how: Any) -> Table:  # noqa: ANN401  # of Table
    first, *others = columns
    table = Table(title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, **how)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def new_folder(kept: Path | None, *, verb: str) -> Path:
    """The empty folder that is to be kept, made if missing; else one that the caller may keep.

    Raises ``click.UsageError``: something is in it.
    """
    if kept is None:
        return Path(tempfile.mkdtemp(prefix=f"federator-{verb}-"))
    if kept.exists() and any(kept.iterdir()):
        raise click.UsageError(f"--keep {kept}: not empty")
    kept.mkdir(parents=True, exist_ok=True)
    return kept.resolve()


def remove(folder: Path, *, unless: Path | None) -> None:
    """Remove a ``new_folder``, unless it was asked for."""
    if unless is None:
        shutil.rmtree(folder, ignore_errors=True)


class Bars:
    """A progress bar on standard error for each thing under way; silent without a terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=2,
            transient=True,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self.progress.add_task(what, total=total)
        self.progress.update(self._tasks[what], completed=done)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """While something is printed, so that no bar is drawn into it."""
        self.progress.stop()
        yield
        self.progress.start()

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()


def tell(lines: Iterable[str], found: object, *, as_json: bool) -> None:
    """Print what came of a verb: ``found`` as JSON, or ``lines`` for people.

    Dataclasses become objects by their fields' names. Of keys that are tuples the parts are joined
    by commas. What is infinite or not a number becomes null. Numbers may be numpy's.
    """
    if as_json:
        click.echo(_json(found))
        return
    for line in lines:
        click.echo(line)


def write_json(file: Path | None, found: object) -> None:
    """Write ``found`` into ``file``, if there is one, as ``tell`` prints it."""
    if file is not None:
        file.write_bytes(_json(found, indent=1) + b"\n")


def _json(found: object, indent: int | None = None) -> bytes:
    return to_json(found, indent=indent, inf_nan_mode="null", fallback=methodcaller("item"))


def fields_of(outcome: "DataclassInstance") -> dict[str, object]:
    return {each.name: getattr(outcome, each.name) for each in fields(outcome)}


def write_atomically(file: Path, text: str) -> None:
    """Nobody who looks sees half of it."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)


def report_console(columns: int, *, stderr: bool = False) -> Console:
    """A console as wide as the terminal; without one ``columns`` wide, so that no table is cut."""
    console = Console(stderr=stderr)
    if not console.is_terminal:
        console.width = columns
    return console

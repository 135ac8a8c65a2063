"""What several verbs share: numbers, folders, bars, what is printed, and an orderly end."""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import fields
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click
import structlog
import uvloop
from pydantic_core import to_json
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def numbers(
    context: click.Context, option: click.Parameter, text: str | None
) -> tuple[int, ...] | None:
    """Whole numbers written as ``1,3``, for an option's callback."""
    if text is None:
        return None
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r}: numbers like 1,3 wanted", context, option) from None


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
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


def in_folder(
    work: Callable[[Path], Coroutine[Any, Any, _Outcome]], kept: Path | None, *, verb: str
) -> _Outcome:
    """Carry out ``work`` in ``folder_for``; what our clients log goes to standard error."""
    log_to_standard_error()
    with folder_for(kept, verb=verb) as folder:
        return uvloop.run(until_stopped(work(folder), name=verb))


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
        """Show that ``done`` of ``total`` steps of ``what`` are taken."""
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


def tell(lines: Iterable[str], found: Mapping[str, object], *, as_json: bool) -> None:
    """Print what came of a verb: ``found`` as one JSON object, or ``lines`` for people.

    Dataclasses become objects by their fields' names. Of keys that are tuples the parts are joined
    by commas. What is infinite or not a number becomes null. Numbers may be numpy's.
    """
    if as_json:
        click.echo(to_json(dict(found), inf_nan_mode="null", fallback=methodcaller("item")))
        return
    for line in lines:
        click.echo(line)


def judged(lines: Iterable[str], found: Mapping[str, object], *, held: bool, as_json: bool) -> int:
    """``tell`` what came of a verb, and whether it is as it should be; the exit code."""
    tell(lines, {"held": held, **found}, as_json=as_json)
    return 0 if held else FAILED


def fields_of(outcome: "DataclassInstance") -> dict[str, object]:
    """What a dataclass holds, by the names of its fields."""
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

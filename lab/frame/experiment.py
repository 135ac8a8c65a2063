"""The frame of an experiment: settings are options, an outcome lines, JSON and an exit code."""

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import uvloop

from federator.cli.options import FOLDER, json_option
from federator.errors import FederatorError
from lab.frame.printing import (
    FAILED,
    fields_of,
    log_to_standard_error,
    new_folder,
    remove,
    tell,
    until_stopped,
)
from lab.frame.settings import options

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Tell = Callable[[str], None]
"""Takes a line about how far an experiment is."""

_Settings = TypeVar("_Settings", bound="DataclassInstance")


class Result:
    """What an experiment showed; a dataclass whose fields are its JSON."""

    __slots__ = ()

    @property
    def held(self) -> bool:
        """Whether it showed what it should."""
        raise NotImplementedError

    def lines(self) -> Iterable[str]:
        """The outcome for people."""
        raise NotImplementedError

    def record(self) -> Mapping[str, object]:
        """The outcome for machines."""
        return fields_of(self)  # type: ignore[arg-type]  # each of them is a dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing that was to be shown."""

    text: str
    held: bool


class Judged(Result):
    """A result that holds when all its verdicts do."""

    __slots__ = ()

    def verdicts(self) -> Iterable[Verdict]:
        """All that was to be shown."""
        raise NotImplementedError

    @property
    def held(self) -> bool:
        return all(each.held for each in self.verdicts())

    def lines(self) -> Iterable[str]:
        return [f"{'ok  ' if each.held else 'MISSED'}  {each.text}" for each in self.verdicts()]

    def record(self) -> Mapping[str, object]:
        return {"verdicts": [*self.verdicts()], **super().record()}


def experiment(
    name: str,
    settings: type[_Settings],
    run: Callable[[_Settings, Path, Tell], Coroutine[Any, Any, Result]],
) -> click.Command:
    """The verb that does ``run``, whose docstring is its help; exits 0 when the outcome holds.

    Configurations and logs are in the folder that ``run`` is given. Unless it is asked for, it is
    removed when the outcome holds or a signal ended the run.
    """

    @click.command(name=name, help=inspect.getdoc(run))
    @options(settings)
    @click.option("--keep", type=FOLDER, help="Keep configurations and logs in this new folder.")
    @json_option
    def command(chosen: _Settings, keep: Path | None, as_json: bool) -> int:
        log_to_standard_error()
        folder = new_folder(keep, verb=name)
        say = partial(click.echo, err=as_json)
        try:
            outcome = uvloop.run(until_stopped(run(chosen, folder, say), name=name))
        except FederatorError:
            click.echo(f"logs: {folder}", err=True)
            raise
        except click.exceptions.Exit:
            remove(folder, unless=keep)
            raise
        held = outcome.held
        lines = [*outcome.lines(), "held" if held else "NOT held"]
        tell(lines, {"held": held, **outcome.record()}, as_json=as_json)
        if not held:
            say(f"logs: {folder}")
            return FAILED
        remove(folder, unless=keep)
        return 0

    return command

"""Shared by several verbs: the configuration option, output, aligned rows."""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from federator.errors import ConfigError

if TYPE_CHECKING:
    from federator.config.settings import Settings

_Verb = TypeVar("_Verb", bound=Callable[..., object])

CONFIG_FOLDER = Path("/etc/federator")
DEFAULT_CONFIG = CONFIG_FOLDER / "federator.toml"

PLACE = click.Path(path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)

option = partial(click.option, show_default=True)
"""An option with its default, if any, at the end of its help."""


def together(*options: Callable[[_Verb], _Verb]) -> Callable[[_Verb], _Verb]:
    """Several options as one decorator, in the order of the help."""

    def with_options(verb: _Verb) -> _Verb:
        for option in reversed(options):
            verb = option(verb)
        return verb

    return with_options


def config_file(otherwise: str, **more: Any) -> Callable[[_Verb], _Verb]:  # noqa: ANN401 - click's
    """``-c``, without which ``otherwise`` is read; ``more`` are arguments of ``click.option``."""
    about = f"Configuration file. [{otherwise}]"
    return click.option("-c", "--config", type=PLACE, help=about, **more)


config_option = config_file(f"$FEDERATOR_CONFIG or {DEFAULT_CONFIG}")
"""Without it $FEDERATOR_CONFIG, the usual file, or the environment alone."""

answer_option = click.option("--json", "as_json", is_flag=True, help="The agent's answer as it is.")


json_option = click.option("--json", "as_json", is_flag=True, help="For machines.")


def print_result(record: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Print the result of a verb: ``record`` for machines, or ``lines`` for people."""
    click.echo(json.dumps(record, indent=2) if as_json else "\n".join(lines))


def settings_from(path: Path | None, *, secrets: bool = True) -> "Settings":
    """The configuration named by ``path`` or the environment; as ``load``."""
    from federator.config.reading import load  # noqa: PLC0415 - the agent's process has no use

    return load(_chosen(path), os.environ, secrets=secrets)


def named(path: Path | None) -> str:
    """What to call the configuration in an error message."""
    return str(_chosen(path) or "environment")


def _chosen(path: Path | None) -> Path | None:
    if path is None and (named := os.environ.get("FEDERATOR_CONFIG")):
        path = Path(named)
    told_by_environment = any(key.startswith("FEDERATOR_BROKER__") for key in os.environ)
    if path is None and (DEFAULT_CONFIG.exists() or not told_by_environment):
        path = DEFAULT_CONFIG
    return path


def write_new(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file that must not be there yet. Raises ``ConfigError``: it is, or it cannot be."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError as error:
        raise there_already(path) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        text = f"{path}: {reason}: name another place"
        raise ConfigError(text, exit_code=os.EX_CANTCREAT) from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def there_already(path: Path) -> ConfigError:
    """Why nothing is written to ``path``."""
    text = f"{path}: is there already: remove it first, if you are sure"
    return ConfigError(text, exit_code=os.EX_CANTCREAT)


def toml(value: str | Sequence[str]) -> str:
    """A text or a list of texts as TOML writes it: as JSON does, but for pairs of surrogates."""
    return json.dumps(value, ensure_ascii=False)


def columns(rows: Sequence[Sequence[object]], *, indent: int = 0) -> list[str]:
    """Rows as lines, each column as wide as its widest cell."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        " " * indent
        + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]

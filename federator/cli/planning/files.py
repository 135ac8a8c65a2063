"""Reading and writing the planner's files; the one place that names the file in an error.

What cannot be read or written, or is too large to be meant, raises a ``ConfigError``.
"""

from os import EX_CANTCREAT, EX_NOINPUT, EX_NOPERM
from pathlib import Path

import click

from federator.errors import ConfigError, InstanceError
from federator.planner.flow import instance_file
from federator.planner.flow.instance import Instance


def read(path: Path) -> Instance:
    try:
        return instance_file.decode(read_bytes(path))
    except InstanceError as error:
        raise InstanceError(f"{path}: {error}") from None


def read_bytes(path: Path) -> bytes:
    """What ``path`` holds, unless that is too much to be meant."""
    most = instance_file.FILE_BYTES_MAX
    try:
        size = path.stat().st_size
        if size > most:
            raise InstanceError(f"{path}: {size} bytes: at most {most} wanted")
        with path.open("rb") as file:
            data = file.read(most + 1)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file", exit_code=EX_NOINPUT) from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", exit_code=EX_NOPERM) from None
    if len(data) > most:
        raise InstanceError(f"{path}: more than {most} bytes: at most that wanted")
    return data


def write(path: Path | None, text: str) -> None:
    """Write ``text`` to ``path``, or to standard output."""
    if path is None:
        click.echo(text, nl=False)
        return
    try:
        path.write_text(text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", exit_code=EX_CANTCREAT) from None

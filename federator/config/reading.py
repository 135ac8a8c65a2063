"""Reads a TOML file and the environment into settings, or fails with one line: what to mend.

An environment variable names a key, ``FEDERATOR_BROKER__ID``; values that are not text are JSON.
Variables that name no section are ignored: orchestrators set names like ``FEDERATOR_PORT``. The
variables of service managers are read in ``service_manager``.

Relative paths in a file start at its folder, those in the environment at the working folder.
"""

import functools
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError

from federator.config.all_brokers.collector import CollectorSettings
from federator.config.all_brokers.console import ConsoleSettings
from federator.config.all_brokers.steerer import SteererSettings
from federator.config.brokers import Credentials, Secret, first_line
from federator.config.complaints import first_complaint, line_of
from federator.config.gateway import GatewaySettings, ListenerSettings
from federator.config.section import (
    Location,
    SecretFile,
    Section,
    keys_of,
    secret_files,
    section_in,
    tables_in,
)
from federator.config.settings import Settings
from federator.config.validation import validated
from federator.errors import ConfigError

CONFIG_BYTES_MAX = 4_194_304
LINE_CHARACTERS_MAX = 900
ENVIRONMENT_PREFIX = "FEDERATOR_"
_LINE_IN_MESSAGE = re.compile(r" \(at line (\d+), column \d+\)$| \(at end of document\)$")


@dataclass(slots=True)
class _Source:
    """The origin of values, for error messages."""

    name: str  # of the file
    text: str = ""  # of the file
    # What stands over the file, by place: a variable or an option of the command line.
    variables: dict[Location, str] = field(default_factory=dict)

    def error(
        self, location: Location, complaint: str, exit_code: int = os.EX_CONFIG
    ) -> ConfigError:
        """``complaint`` about the value at ``location``."""
        for length in range(len(location), 0, -1):
            if variable := self.variables.get(location[:length]):
                return _refusal(f"{variable}: {complaint}", exit_code)
        line = line_of(self.text, location)
        place = self.name if line is None else f"{self.name}:{line}"
        return _refusal(f"{place}: {complaint}", exit_code)


_Root = TypeVar(
    "_Root", Settings, GatewaySettings, CollectorSettings, SteererSettings, ConsoleSettings
)

_MultiBroker = TypeVar("_MultiBroker", CollectorSettings, SteererSettings, ConsoleSettings)


def load(path: Path | None, environ: Mapping[str, str], *, secrets: bool = True) -> Settings:
    """Read, merge and check an agent's configuration: the TOML file, if any, and ``environ``.

    Args:
        secrets: Check the named files of secrets and certificates, too. Users that only query the
            agent may be unable to read these.

    Raises ``ConfigError``: one line, with the exit code for a supervisor.
    """
    settings, source = _settings(Settings, path, environ)
    if not secrets:
        return settings
    _check_files(path, settings, source)
    if settings.former is not None and (
        hindrance := _objection_to_former(settings, load_former(settings))
    ):
        what, mend = hindrance
        raise source.error(("former",), f"former: {settings.former}: {what}: {mend}")
    return settings


def load_former(settings: Settings) -> Settings:
    """The configuration of this broker before its role changed, ``settings.former``; as ``load``.

    It is complete enough to start an agent.
    """
    former, source = _settings(Settings, settings.former, {})
    _check_files(settings.former, former, source)
    former.require(source.name)
    return former


def _objection_to_former(settings: Settings, former: Settings) -> tuple[str, str] | None:
    """Why ``former`` cannot be the earlier configuration of this broker: ``what``, and how to
    mend."""
    if former.former is not None:
        return "it names a former one itself", "end one move before the next"
    if former.broker.id != settings.broker.id:
        ids = f"it is of broker {former.broker.id}, and this is {settings.broker.id}"
        return ids, "a broker keeps its id"
    if former.broker.address != settings.broker.address:
        return f"it is of {former.broker.url}", f"name the broker there, {settings.broker.url}"
    if former.federation == settings.federation:
        what = f"it is of the federation {former.federation}, too"
        return what, "remove former, a restart is enough"
    if former.state_dir == settings.state_dir:
        return f"its state_dir is {former.state_dir}, too", "give this one a folder of its own"
    if settings.leaves or former.leaves:
        return "there are [[leaves]]", "a broker that moves has none: take them afterwards"
    if former.finds_hubs:
        return "it chooses among hubs", "name there the two that federator status says are taken"
    return None


def load_gateway(path: Path | None, environ: Mapping[str, str]) -> GatewaySettings:
    """Read, merge and check a gateway's configuration; as ``load``."""
    settings, source = _settings(GatewaySettings, path, environ)
    _check_files(path, settings, source)
    return settings


def _load_multi_broker(
    root: type[_MultiBroker],
    path: Path | None,
    environ: Mapping[str, str],
    *,
    landing: Path | None = None,
    brokers: Sequence[str] = (),
    only: bool = False,
) -> _MultiBroker:
    """Read, merge and check the configuration of a daemon that reads all brokers; as ``load``.

    No file is needed. ``landing`` and ``only`` override the file and the environment; ``brokers``
    are added.
    """

    def put_over(values: dict[str, Any], source: _Source) -> None:
        if path is None:
            source.name = "command line"
        for key, value, option in (("landing", landing, "--to"), ("only", only, "--only")):
            if value:
                values[key] = value if value is True else str(value)
                source.variables[(key,)] = option
        named = values.setdefault("brokers", []) if brokers else None
        if isinstance(named, list):
            for url in brokers:
                source.variables[("brokers", len(named))] = "--broker"
                named.append({"url": url})

    settings, source = _settings(root, path, environ, put_over)
    _check_files(path, settings, source)
    settings.keys.own_keys()
    return settings


load_collector = functools.partial(_load_multi_broker, CollectorSettings)
load_steerer = functools.partial(_load_multi_broker, SteererSettings)
load_console = functools.partial(_load_multi_broker, ConsoleSettings)


def _settings(
    root: type[_Root],
    path: Path | None,
    environ: Mapping[str, str],
    put_over: Callable[[dict[str, Any], _Source], None] = lambda values, source: None,
) -> tuple[_Root, _Source]:
    """``put_over`` applies the command line's values over the file's and the environment's."""
    source = _Source("environment" if path is None else str(path))
    values: Any = {} if path is None else _by_folder(root, _read(path, source), path.parent)
    _overlay(root, values, environ, source)
    put_over(values, source)
    try:
        settings = validated(root, values)
    except ValidationError as error:
        found = first_complaint(error, root, lambda at: line_of(source.text, at))
        raise source.error(*found) from None
    return settings, source


def _read(path: Path, source: _Source) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        text = f"{path}: no such file: name the configuration with -c FILE"
        raise _refusal(text, os.EX_NOINPUT) from None
    except PermissionError:
        text = f"{path}: not readable by this user: change its owner or mode"
        raise _refusal(text, os.EX_NOPERM) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        text = f"{path}: {reason.lower()}: name a readable TOML file"
        raise _refusal(text, os.EX_NOINPUT) from None
    if len(data) > CONFIG_BYTES_MAX:
        text = f"{path}: larger than {CONFIG_BYTES_MAX} bytes: name a configuration file"
        raise _refusal(text, os.EX_CONFIG)
    try:
        source.text = data.decode("utf-8").replace("\r\n", "\n")
        return tomllib.loads(source.text)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        text = f"{path}:{line}: not UTF-8: write the file as UTF-8"
    except RecursionError:
        text = f"{path}: nested too deeply: no key here needs nesting"
    except ValueError as error:  # includes TOMLDecodeError
        text = f"{path}:{_syntax_complaint(str(error), source.text)}"
    raise _refusal(text, os.EX_CONFIG)


def _by_folder(kind: object, value: object, folder: Path) -> object:
    """Resolve the paths in ``value``, expected to be a ``kind``, relative to ``folder``."""
    if kind is Path:
        return str(folder / value) if isinstance(value, str) else value
    if (section := section_in(kind)) is not None and isinstance(value, dict):
        keys = keys_of(section)
        return {
            key: _by_folder(keys[key].kind, inner, folder) if key in keys else inner
            for key, inner in value.items()
        }
    for part in get_args(kind):
        if get_origin(kind) is tuple and isinstance(value, list):
            value = [_by_folder(part, item, folder) for item in value]
        else:
            value = _by_folder(part, value, folder)
    return value


def _syntax_complaint(message: str, text: str) -> str:
    found = _LINE_IN_MESSAGE.search(message)
    if found is None:  # Python's own limits, e.g. on the digits of a number
        return f" {message}: shorten the value"
    line = int(found.group(1)) if found.group(1) else text.rstrip("\n").count("\n") + 1
    return f"{line}: TOML syntax: {message[: found.start()]}: mend this line"


def _refusal(text: str, exit_code: int) -> ConfigError:
    """An error with ``text`` as one printable line."""
    printable = "".join(c if c.isprintable() else "?" for c in text)
    return ConfigError(printable[:LINE_CHARACTERS_MAX], exit_code=exit_code)


def _overlay(
    root: type[Section], values: dict[str, Any], environ: Mapping[str, str], source: _Source
) -> None:
    """Override the file's values with those of the environment."""
    for variable in sorted(environ):
        if not variable.upper().startswith(ENVIRONMENT_PREFIX):
            continue
        names = variable[len(ENVIRONMENT_PREFIX) :].lower().split("__")
        if len(names) == 1:
            _check_underscores(root, variable, environ[variable])
        key = keys_of(root).get(names[0])
        if key is None or len(names) > 2:
            continue
        section = section_in(key.kind)
        if (section is not None) != (len(names) == 2):
            continue
        source.variables[tuple(names)] = f"${variable}"
        target = values
        if len(names) == 2:
            target = values.setdefault(names[0], {})
            if not isinstance(target, dict):
                continue  # validation complains about the section itself
        target[names[-1]] = _from_text(section or root, names[-1], environ[variable])


def _check_underscores(root: type[Section], variable: str, value: str) -> None:
    """Catch FEDERATOR_BROKER_ID, unless an orchestrator set it (its values are addresses)."""
    section, _, key = variable[len(ENVIRONMENT_PREFIX) :].lower().partition("_")
    holder = keys_of(root).get(section)
    table = None if holder is None else section_in(holder.kind)
    if table is not None and key in keys_of(table) and not value.startswith(("tcp://", "udp://")):
        wanted = f"{ENVIRONMENT_PREFIX}{section.upper()}__{key.upper()}"
        text = f"${variable}: one underscore between section and key: write {wanted}"
        raise _refusal(text, os.EX_CONFIG)


def _from_text(section: type[Section], name: str, text: str) -> object:
    """``text`` itself where the key holds text; otherwise the JSON it spells."""
    key = keys_of(section).get(name)
    if key is None or _holds_text(key.kind):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text  # validation says what was wanted


def _holds_text(annotation: object) -> bool:
    if get_origin(annotation) in (Annotated, Literal, Union, UnionType):
        return any(isinstance(a, str) or _holds_text(a) for a in get_args(annotation))
    return annotation in (str, Path, Secret)


def _check_files(path: Path | None, settings: Section, source: _Source) -> None:
    """Refuse secrets that other users of this machine can read, and certificates that are wrong."""
    for at, table in tables_in(settings):
        if isinstance(table, Credentials) and table.password is not None and path is not None:
            inline = (*at, "password") not in source.variables
            if inline and path.stat().st_mode & stat.S_IRWXO:
                what = f"{path} holds a password and is open to others"
                raise source.error((*at, "password"), f"{what}: chmod o= {path}", os.EX_NOPERM)
        for name, kind, file in secret_files(table):
            _check_secret_file(file, (*at, name), source)
            if kind is SecretFile.PASSWORD and not first_line(file):
                what = f"{file}: its first line is empty: write the password there"
                raise source.error((*at, name), what)
        match table:
            case Credentials():
                _check_context(table.verifying_context, table, "ca_file", at, source)
            case ListenerSettings():
                _check_context(table.context, table, "client_ca_file", at, source)
            case _:
                pass


def _check_secret_file(file: Path, location: Location, source: _Source) -> None:
    try:
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode):  # reading a pipe could take for ever
            raise source.error(location, f"{file} is not a file: correct the path")
        with file.open("rb") as opened:
            opened.read(1)
    except PermissionError:
        what = f"{file} is not readable by this user: change its owner or mode"
        raise source.error(location, what, os.EX_NOPERM) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise source.error(location, f"{file}: {reason.lower()}: correct the path") from None
    if mode & stat.S_IRWXO:
        what = f"{file} is open to others: chmod o= {file}"
        raise source.error(location, what, os.EX_NOPERM)


def _check_context(
    make: Callable[[datetime], object], table: Section, ca_key: str, at: Location, source: _Source
) -> None:
    """Call ``make`` for the TLS context of ``table``; raise an error about the file that is wrong.

    ``ca_key`` names the authorities.
    """
    files = {key: getattr(table, key) for key in ("cert_file", "key_file", ca_key)}
    if not any(files.values()):
        return
    try:
        make(datetime.now(UTC))
    except FileNotFoundError as error:
        text = f"{error.filename}: no such file: correct the path"
    except PermissionError as error:
        text = f"{error.filename} is not readable by this user: change its owner or mode"
        raise source.error((*at, _key_of(files, text)), text, os.EX_NOPERM) from None
    except (OSError, ValueError) as error:
        text = str(error)
    else:
        return
    raise source.error((*at, _key_of(files, text)), text)


def _key_of(files: dict[str, Path | None], text: str) -> str:
    """The key of the file that ``text`` begins with, otherwise the last key."""
    *others, last = files
    for key in others:
        if (file := files[key]) is not None and text.startswith(str(file)):
            return key
    return last

"""``federator diag``: one archive for a bug report, without secrets."""

import io
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from os import EX_CANTCREAT
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click
from pydantic_core import to_jsonable_python

from federator.cli.agent_pages import agent_url, get, get_text, url_option
from federator.cli.options import (
    FILE,
    config_option,
    json_option,
    option,
    print_result,
    settings_from,
)
from federator.config.brokers import Secret
from federator.config.section import Section, secret_files, tables_in
from federator.config.settings import Settings
from federator.errors import ConfigError, DecodeError, LinkError
from federator.protocol.messages.fields import json_value

LOG_BYTES_MAX: Final = 4_194_304
JOURNAL_LINES: Final = 20_000
JOURNAL_SECONDS_MAX: Final = 20.0
STATE_FILES_MAX: Final = 2_000

_NAME: Final = re.compile(r"^[A-Za-z0-9._-]+")

README: Final = """\
For a bug report about federator. Passwords, keys and their files are not in here, and every text
was searched for them. Names of topics, clients, brokers and hosts are: look before you pass it on.

about.json       releases, system, limits
config.json      the configuration as the agent understands it; config_error.txt: why it does not
environment.txt  names of variables that begin with FEDERATOR_
status.json ...  the agent's own pages; metrics-1.txt and -2.txt are a second apart
state.txt        names, sizes and times of the files in its state folder
log.txt          the end of its log, if it was found
missing.txt      what could not be had, and why
"""


@click.command(name="diag")
@config_option
@url_option
@click.option("-o", "--output", type=FILE, help="The archive. [federator-diag-TIME.tar.gz]")
@click.option("--topic", "topics", multiple=True, help="A topic to explain; several times.")
@click.option("--log", type=FILE, help="Where the agent's log goes. [the journal of --unit]")
@option("--unit", default="federator", help="Of systemd.")
@json_option
def command(
    config: Path | None,
    url: str | None,
    output: Path | None,
    topics: tuple[str, ...],
    log: Path | None,
    unit: str,
    as_json: bool,
) -> None:
    """Gather what a bug report needs: configuration, state, metrics, versions, log.

    Secrets are left out. Works without a running agent, and with a configuration that is refused.
    """
    now = datetime.now(UTC)
    output = output or Path(f"federator-diag-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    gathered = Gathered()
    settings = gathered.settings(config)
    gathered.take("about.json", lambda: _json(_about(now)))
    gathered.take("environment.txt", _environment)
    if settings is not None:
        loaded = settings
        gathered.take("config.json", lambda: _json(to_jsonable_python(loaded, fallback=str)))
        gathered.take("state.txt", lambda: "".join(_state(loaded.state_dir)))
        gathered.take("log.txt", lambda: _log(log, unit))
    gathered.pages(lambda: agent_url(config, url), topics)
    _write(output, gathered.whole(), now)
    lines = [f"{output}: {', '.join(sorted(gathered.files))}"]
    lines += [f"  without {what}: {why}" for what, why in gathered.missing.items()]
    lines.append("Secrets are left out; names of topics, clients, brokers and hosts are not.")
    record = {"written": str(output), "files": sorted(gathered.files), "missing": gathered.missing}
    print_result(record, lines, as_json=as_json)


class Gathered:
    """The files gathered so far, and those missing."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {"README.txt": README.encode()}
        self.missing: dict[str, str] = {}
        self._secrets: set[str] = set()

    def settings(self, config: Path | None) -> Settings | None:
        """Load the configuration; its secrets are removed from all files."""
        try:
            settings = settings_from(config)
        except ConfigError as error:
            self.files["config_error.txt"] = f"{error}\n".encode()
            self.missing["config.json"] = str(error)
            self.missing["log.txt"] = "without a configuration its secrets are not known"
            return None
        self._secrets = secrets_of(settings)
        return settings

    def take(self, name: str, make: Callable[[], str]) -> None:
        """Add one file, or the reason why it is missing."""
        try:
            self.files[name] = make().encode("utf-8", errors="replace")
        except (ConfigError, LinkError, OSError, ValueError, subprocess.SubprocessError) as error:
            self.missing[name] = str(error) or type(error).__name__

    def pages(self, where: Callable[[], str], topics: tuple[str, ...]) -> None:
        """Take the agent's pages."""
        try:
            url = where()
        except (ConfigError, LinkError) as error:
            self.missing["the agent's pages"] = str(error)
            return
        self.take("metrics-1.txt", lambda: get_text(url, "/metrics"))
        if "metrics-1.txt" not in self.files:
            return
        for page in ("status", "routes", "controller"):
            self.take(f"{page}.json", partial(_page, url, f"/{page}"))
        for number, topic in enumerate(topics, 1):
            self.take(f"explain-{number}.json", partial(_page, url, "/explain", topic=topic))
        time.sleep(1.0)
        self.take("metrics-2.txt", lambda: get_text(url, "/metrics"))

    def whole(self) -> Mapping[str, bytes]:
        """All files, without secrets."""
        missing = "".join(f"{what}: {why}\n" for what, why in self.missing.items())
        files = {**self.files, **({"missing.txt": missing.encode()} if missing else {})}
        return {name: strike(content, self._secrets) for name, content in files.items()}


def _about(now: datetime) -> dict[str, Any]:
    names = sorted(
        {name for line in requires("mqtt-federator") or () for name in _NAME.findall(line)}
    )
    return {
        "at": now.isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "files_max": resource.getrlimit(resource.RLIMIT_NOFILE),
        "packages": {"federator": version("mqtt-federator")} | _versions(names),
    }


def _versions(names: list[str]) -> dict[str, str]:
    found = {}
    for name in names:
        with suppress(PackageNotFoundError):  # of an extra that is not installed
            found[name] = version(name)
    return found


def _environment() -> str:
    return "".join(f"{name}\n" for name in sorted(os.environ) if name.startswith("FEDERATOR_"))


def _state(folder: Path) -> Iterator[str]:
    paths = sorted(folder.rglob("*"))
    for path in paths[:STATE_FILES_MAX]:
        try:
            info = path.lstat()
        except FileNotFoundError:  # the agent replaced it meanwhile
            continue
        at = datetime.fromtimestamp(info.st_mtime, UTC)
        yield f"{info.st_size:>12} {at:%Y-%m-%dT%H:%M:%SZ} {path.relative_to(folder)}\n"
    if not paths:
        yield f"{folder}: {'empty' if folder.is_dir() else 'not there'}\n"
    if len(paths) > STATE_FILES_MAX:
        yield f"and {len(paths) - STATE_FILES_MAX} more\n"


def _log(path: Path | None, unit: str) -> str:
    """The end of the log; a ``LinkError`` when it was not found."""
    if path is not None:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES_MAX))
            return file.read().decode("utf-8", errors="replace")
    journalctl = shutil.which("journalctl")
    if journalctl is None:
        raise LinkError("no journal here: name it with --log")
    done = subprocess.run(
        [journalctl, f"--unit={unit}", f"--lines={JOURNAL_LINES}", "--no-pager", "--output=cat"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=JOURNAL_SECONDS_MAX,
        check=False,
    )
    if done.returncode or not done.stdout.strip():
        raise LinkError(f"journalctl has nothing of {unit}: name the log with --log")
    return done.stdout[-LOG_BYTES_MAX:]


def _write(output: Path, files: Mapping[str, bytes], now: datetime) -> None:
    """Write ``files`` into one new archive that only its owner may read."""
    folder = output.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    try:
        # Closed to others: it contains names of topics and clients.
        made = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(made, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, content in sorted(files.items()):
                member = tarfile.TarInfo(f"{folder}/{name}")
                member.size, member.mtime, member.mode = len(content), int(now.timestamp()), 0o600
                archive.addfile(member, io.BytesIO(content))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        text = f"{output}: {reason}: name another file with -o"
        raise ConfigError(text, exit_code=EX_CANTCREAT) from error


def _page(url: str, page: str, **query: str) -> str:
    return _json(get(url, page, **query))


def _json(value: object) -> str:
    return json.dumps(value, indent=1, default=str, ensure_ascii=False) + "\n"


STRUCK: Final = b"[REDACTED]"
CHARACTERS_MIN: Final = 4
"""Shorter secrets would match other text everywhere."""

KEY_FILE_BYTES_MAX: Final = 1_048_576
SECRETS_IN_PAPERS: Final = ("signing", "exchange", "secret")
"""Of ``protocol.trust.key_files``."""


def secrets_of(settings: Section) -> set[str]:
    """All secrets in ``settings`` and in readable files that they name."""
    found: set[str] = set()
    for _, table in tables_in(settings):
        found |= {value.text for value in vars(table).values() if isinstance(value, Secret)}
        for _, _, file in secret_files(table):
            found |= set(_in_file(file))
    return found


def _in_file(path: Path) -> Iterator[str]:
    """The secrets of a key file of ours; of any other file all, and each line that says something.

    Our key files also contain the federation's name, which is no secret and occurs everywhere.
    """
    try:
        with path.open("rb") as file:
            content = file.read(KEY_FILE_BYTES_MAX)
    except OSError:
        return
    try:
        paper = json_value("paper", content, KEY_FILE_BYTES_MAX)
    except DecodeError:
        paper = None
    if isinstance(paper, dict):
        yield from (str(paper[name]) for name in SECRETS_IN_PAPERS if name in paper)
        return
    text = content.decode("utf-8", errors="replace")
    yield text.strip("\r\n")
    yield from (line for line in text.splitlines() if not line.startswith("-----"))


def strike(content: bytes, secrets: Iterable[str]) -> bytes:
    """Remove all ``secrets`` from ``content``, in any encoding.

    Masking configuration keys is not enough: a log or an error may repeat a secret. So each text is
    searched for every secret, in each encoding in which it may occur.
    """
    forms: set[bytes] = set()
    for secret in secrets:
        if len(secret) >= CHARACTERS_MIN:
            shapes = (
                secret,
                json.dumps(secret)[1:-1],
                json.dumps(secret, ensure_ascii=False)[1:-1],
                repr(secret)[1:-1],
                quote(secret, safe=""),
            )
            forms |= {shape.encode("utf-8", errors="replace") for shape in shapes}
    for form in sorted(forms, key=len, reverse=True):
        content = content.replace(form, STRUCK)
    return content

"""``federator init``: an agent's configuration, from five answers."""

import json
import socket
import sys
from os import EX_NOINPUT
from pathlib import Path
from typing import Any, Final

import click

from federator.cli.options import (
    DEFAULT_CONFIG,
    FILE,
    FOLDER,
    config_file,
    json_option,
    tell,
    there_already,
    write_new,
)
from federator.cli.setup.keys import PUBLIC
from federator.config.brokers import Address
from federator.config.reading import load
from federator.config.schemas import schema_file
from federator.errors import ConfigError
from federator.protocol.types import BROKER_ID_MAX
from federator.runtime.storage.durable import SHARED_FILE

OPEN: Final = "open"
NONE: Final = "none"
HERE: Final = "mqtt://127.0.0.1:1883"

HEAD: Final = """\
#:schema {schema}
# Written by `federator init`; `federator check-config --reference` tells every key.
"""


class _BrokerUrl(click.ParamType[str]):
    """The URL of a broker, judged as the configuration judges it; ``none`` where that may be."""

    name = "url"

    def __init__(self, *, may_be_none: bool) -> None:
        self._may_be_none = may_be_none

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == NONE and self._may_be_none:
            return value
        try:
            Address.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return value


URL, URL_OR_NONE = _BrokerUrl(may_be_none=False), _BrokerUrl(may_be_none=True)
ID = click.IntRange(0, BROKER_ID_MAX)


@click.command(name="init")
@config_file(f"{DEFAULT_CONFIG}")
@click.option("--id", "id_", type=ID, help="Id of the broker.")
@click.option("--broker", type=URL, metavar="URL", help="Where the agent reaches it.")
@click.option(
    "--advertise", type=URL_OR_NONE, metavar=f"URL|{NONE}", help="Where other agents reach it."
)
@click.option(
    "--neighbour",
    type=URL_OR_NONE,
    metavar=f"URL|{NONE}",
    help="Any broker that takes part already.",
)
@click.option(
    "--keys",
    metavar=f"FOLDER|{OPEN}",
    help=f"Where agent-ID.key and {PUBLIC} lie, or {OPEN}: none.",
)
@click.option("--state-dir", type=FOLDER, help="Another state_dir than the usual one.")
@click.option("--http-port", type=click.IntRange(0, 65_535), help="Another http.port.")
@click.option("--user", help="User of the agent at its broker and at others.")
@click.option("--password-file", type=FILE, help="File whose first line is that user's password.")
@json_option
def command(
    config: Path | None,
    id_: int | None,
    broker: str | None,
    advertise: str | None,
    neighbour: str | None,
    keys: str | None,
    state_dir: Path | None,
    http_port: int | None,
    user: str | None,
    password_file: Path | None,
    as_json: bool,
) -> None:
    """Ask five questions, and write an agent's configuration.

    Each question has an option: its id, --broker, --advertise, --neighbour, --keys. What no option
    answers is asked at a terminal; elsewhere all five are wanted. A file that is there is never
    written over. What is written is checked as check-config does it; doctor asks the broker.
    """
    path = config or DEFAULT_CONFIG
    if path.exists():
        raise there_already(path)  # before anything is asked
    given = {
        "--id": id_, "--broker": broker, "--advertise": advertise,
        "--neighbour": neighbour, "--keys": keys,
    }  # fmt: skip
    missing = [option for option, value in given.items() if value is None]
    if missing and not sys.stdin.isatty():
        raise click.UsageError(f"{', '.join(missing)} wanted: there is no terminal to ask at")
    answers = _answers(given, path.parent)
    secret = None if password_file is None else str(password_file.absolute())
    own = {"username": user, "password_file": secret}
    text = written(answers, path, state_dir=state_dir, http_port=http_port, login=own)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_new(path, text.encode(), mode=SHARED_FILE)
    try:
        load(path, {}).require(str(path))
    except ConfigError:
        path.unlink()
        raise
    text = f"{path}: written; next: federator doctor -c {path}"
    tell({"written": str(path)}, text, as_json=as_json)


def _answers(given: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The five, asked for where they are not given."""
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "--id": ("Id of your broker, unique in the federation", {"type": ID}),
        "--broker": ("Where this agent reaches it", {"type": URL, "default": HERE}),
        "--advertise": (
            f"Where other agents reach it ({NONE}: nobody can connect to it)",
            {"type": URL_OR_NONE, "default": f"mqtt://{socket.gethostname()}:1883"},
        ),
        "--neighbour": (
            f"Any broker that takes part already ({NONE}: this is the first)",
            {"type": URL_OR_NONE},
        ),
        "--keys": (
            f"Folder of agent-ID.key and {PUBLIC} ({OPEN}: believe whoever may publish)",
            {"default": str(folder)},
        ),
    }
    return {
        option: click.prompt(asked[option][0], err=True, **asked[option][1])
        if value is None
        else value
        for option, value in given.items()
    }


def written(
    answers: dict[str, Any],
    path: Path,
    *,
    state_dir: Path | None,
    http_port: int | None,
    login: dict[str, str | None],
) -> str:
    """The file, as people would write it."""
    lines = [HEAD.format(schema=schema_file("agent"))]
    keys: list[str] = []
    if answers["--keys"] == OPEN:
        lines.append(f'security = "{OPEN}"   # whoever may publish on the brokers is believed')
    else:
        keys = _keys(Path(answers["--keys"]), answers["--id"], path.parent)
    if state_dir is not None:
        lines.append(f"state_dir = {_quoted(state_dir, path.parent)}")
    lines += [*([""] if lines[1:] else []), "[broker]", f"id = {answers['--id']}"]
    lines.append(f"url = {_text(answers['--broker'])}")
    hidden = answers["--advertise"] == NONE
    if not hidden and answers["--advertise"] != answers["--broker"]:
        lines.append(f"advertise = {_text(answers['--advertise'])}")
    named = [f"{key} = {_text(value)}" for key, value in login.items() if value]
    lines += named
    if answers["--neighbour"] != NONE:
        lines += ["", "[[neighbours]]", f"url = {_text(answers['--neighbour'])}"]
    if hidden or named:
        lines += ["", "[links]", *(['dial = "out"'] if hidden else []), *named]
    lines += keys
    if http_port is not None:
        lines += ["", "[http]", f"port = {http_port}"]
    return "\n".join(lines) + "\n"


def _keys(folder: Path, id: int, home: Path) -> list[str]:
    agent, public = folder / f"agent-{id}.key", folder / PUBLIC
    for file in (agent, public):
        if not file.exists():
            made = f"federator keys issue --broker {id}, and bring it here with {PUBLIC}"
            raise ConfigError(f"{file}: no such file: make it with {made}", exit_code=EX_NOINPUT)
    files = f"[{_quoted(public, home)}]"
    return ["", "[keys]", f"agent_file = {_quoted(agent, home)}", f"federation_files = {files}"]


def _quoted(path: Path, home: Path) -> str:
    """As the file in the folder ``home`` names it: its own folder is left out."""
    whole = path.absolute()
    inside = whole.is_relative_to(home.absolute())
    return _text(str(whole.relative_to(home.absolute()) if inside else whole))


def _text(value: str) -> str:
    """As TOML writes it: JSON's texts are TOML's, but for pairs of surrogates."""
    return json.dumps(value, ensure_ascii=False)

"""``federator init``: an agent's configuration, from five answers, or from its broker's bridges."""

import socket
import sys
from collections.abc import Mapping, Sequence
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
    option,
    print_result,
    there_already,
    toml,
    write_new,
)
from federator.cli.setup.bridges.counterparts import Written, neighbours_of
from federator.cli.setup.bridges.counterparts import written as counterparts
from federator.cli.setup.bridges.mosquitto_conf import Connection, read_bridges
from federator.cli.setup.keys import PUBLIC
from federator.config.brokers import Address
from federator.config.reading import load
from federator.config.schemas import schema_file
from federator.errors import ConfigError
from federator.protocol.types import BROKER_ID_MAX
from federator.runtime.storage.durable import PRIVATE_FILE, SHARED_FILE

OPEN: Final = "open"
NONE: Final = "none"
HERE: Final = "mqtt://127.0.0.1:1883"

HEAD: Final = """\
#:schema {schema}
# Written by `federator init`; `federator check-config --reference` tells every key.
"""


class _BrokerUrl(click.ParamType[str]):
    """The URL of a broker, checked as in the configuration; or ``none`` where allowed."""

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


class _KeyFolder(click.ParamType[str]):
    """A folder with the keys of a broker, or ``open``: looked at where it is asked for."""

    name = "folder"

    def __init__(self, id: int) -> None:
        self._id = id

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value != OPEN:
            try:
                _keys(Path(value), self._id, Path())
            except ConfigError as error:
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
@click.option(
    "--from-bridges",
    type=FILE,
    metavar="MOSQUITTO.CONF",
    help="Neighbours, rules and renames that do what the bridges in this file do.",
)
@click.option(
    "--remote",
    "remotes",
    multiple=True,
    metavar="CONNECTION=ID[,ID]",
    help="Ids of the brokers at a bridge's addresses, in order; once for each connection.",
)
@option(
    "--names",
    type=click.Choice(["there", "here"]),
    default="there",
    help="Whose names of topics that bridges rename are the federation's: the other brokers', or"
    " this one's. With here it says what to rename at their agents.",
)
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
    from_bridges: Path | None,
    remotes: tuple[str, ...],
    names: str,
    user: str | None,
    password_file: Path | None,
    as_json: bool,
) -> None:
    """Ask five questions, and write an agent's configuration.

    Each question has an option: its id, --broker, --advertise, --neighbour, --keys. What no option
    answers is asked at a terminal; elsewhere all five are wanted. A file that is there is never
    written over. What is written is checked as check-config does it; doctor asks the broker.

    With --from-bridges the neighbours are the brokers that the bridges lead to: then the id of each
    is asked for, or given with --remote, instead of --neighbour. What has no counterpart is named.
    """
    path = config or DEFAULT_CONFIG
    if path.exists():
        raise there_already(path)  # before anything is asked
    bridges = _bridges(from_bridges, remotes)
    given: dict[str, Any] = {
        "--id": id_, "--broker": broker, "--advertise": advertise,
        "--neighbour": NONE if bridges and neighbour is None else neighbour, "--keys": keys,
    }  # fmt: skip
    ids = _remote_ids(remotes, bridges)
    missing = [option for option, value in given.items() if value is None]
    missing += [f"--remote {bridge.name}=ID" for bridge in bridges if bridge.name not in ids]
    if missing and not sys.stdin.isatty():
        raise click.UsageError(f"{', '.join(missing)} wanted: there is no terminal to ask at")
    answers = _answers(given, path.parent)
    ids |= {bridge.name: _prompted_ids(bridge) for bridge in bridges if bridge.name not in ids}
    found = Written()
    if bridges:
        around = neighbours_of(bridges, ids)
        found = counterparts(bridges, around, path.parent, there=names == "there")
    secret = None if password_file is None else str(password_file.absolute())
    own = {"username": user, "password_file": secret}
    text = written(
        answers, path, state_dir=state_dir, http_port=http_port, login=own, more=found.lines
    )
    _write(path, text, found.passwords)
    lines = [f"{path}: written; next: federator doctor -c {path}", *found.as_text()]
    record = {"written": str(path), **(found.texts if bridges else {})}
    print_result(record, lines, as_json=as_json)


def _bridges(file: Path | None, remotes: Sequence[str]) -> list[Connection]:
    if file is None:
        if remotes:
            raise click.UsageError("--remote without --from-bridges: name the bridges' file")
        return []
    if not (bridges := read_bridges(file)):
        raise click.UsageError(f"{file} has no connection: there is no bridge in it")
    return bridges


def _write(path: Path, text: str, passwords: Mapping[Path, str]) -> None:
    """Write the configuration and what it names, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    try:
        for file, password in passwords.items():
            write_new(file, f"{password}\n".encode(), mode=PRIVATE_FILE)
            made.append(file)
        write_new(path, text.encode(), mode=SHARED_FILE)
        made.append(path)
        load(path, {}).require(str(path))
    except ConfigError:
        for file in made:
            file.unlink()
        raise


def _remote_ids(remotes: Sequence[str], bridges: Sequence[Connection]) -> dict[str, list[int]]:
    """The ids of the brokers at each connection's addresses, as ``--remote`` gives them."""
    found: dict[str, list[int]] = {}
    wanted = {bridge.name: len(bridge.addresses) for bridge in bridges}
    for text in remotes:
        name, _, numbers = text.rpartition("=")
        ids = numbers.split(",")
        if name not in wanted:
            names = ", ".join(sorted(wanted))
            raise click.UsageError(f"--remote {text[:60]!r} names no connection: write {names}=ID")
        if not all(id.isascii() and id.isdigit() and int(id) <= BROKER_ID_MAX for id in ids):
            what = f"--remote {text[:60]!r} has an id that is none"
            raise click.UsageError(f"{what}: give numbers from 0 to {BROKER_ID_MAX}")
        if len(ids) != wanted[name]:
            what = f"--remote {text[:60]!r} has {len(ids)} ids for {wanted[name]} addresses"
            raise click.UsageError(f"{what}: give one for each, in order")
        found[name] = [int(id) for id in ids]
    return found


def _prompted_ids(bridge: Connection) -> list[int]:
    return [
        click.prompt(f"Id of the broker at {address} ({bridge.name})", err=True, type=ID)
        for address in bridge.addresses
    ]


def _answers(given: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The five answers: given, or prompted for; defaults depend on earlier answers."""
    answers: dict[str, Any] = {}

    def ask(option: str, text: str, **how: Any) -> None:  # noqa: ANN401 - click's own
        value = given[option]
        answers[option] = click.prompt(text, err=True, **how) if value is None else value

    ask("--id", "Id of your broker, unique in the federation", type=ID)
    ask("--broker", "Where this agent reaches it", type=URL, default=HERE)
    scheme, _, place = answers["--broker"].partition("://")
    port = Address.parse(answers["--broker"]).port
    path = f"/{place.partition('/')[2]}" if "/" in place else ""
    there = f"{scheme}://{socket.gethostname()}:{port}{path}"
    question = f"Where other agents reach it ({NONE}: nobody can connect to it)"
    ask("--advertise", question, type=URL_OR_NONE, default=there)
    question = f"Any broker that takes part already ({NONE}: this is the first)"
    ask("--neighbour", question, type=URL_OR_NONE)
    question = f"Folder of agent-ID.key and {PUBLIC} ({OPEN}: believe whoever may publish)"
    ask("--keys", question, type=_KeyFolder(answers["--id"]), default=str(folder))
    return answers


def written(
    answers: dict[str, Any],
    path: Path,
    *,
    state_dir: Path | None,
    http_port: int | None,
    login: dict[str, str | None],
    more: Sequence[str] = (),
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
    lines.append(f"url = {toml(answers['--broker'])}")
    hidden = answers["--advertise"] == NONE
    if not hidden and answers["--advertise"] != answers["--broker"]:
        lines.append(f"advertise = {toml(answers['--advertise'])}")
    named = [f"{key} = {toml(value)}" for key, value in login.items() if value]
    lines += named
    if answers["--neighbour"] != NONE:
        lines += ["", "[[neighbours]]", f"url = {toml(answers['--neighbour'])}"]
    if hidden or named:
        lines += ["", "[links]", *(['dial = "out"'] if hidden else []), *named]
    lines += [*keys, *more]
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
    return toml(str(whole.relative_to(home.absolute()) if inside else whole))

"""Starts an agent from what Home Assistant's Supervisor was told: ``start_agent.py [--check]``.

Options of the app become ``federator.toml``, where ``federator check-config`` takes it, and this
process becomes ``federator run``. The broker's address and login come from the options, or else
from the Supervisor's service ``mqtt``, which the Mosquitto app provides.

Everything is written anew at each start, below ``/data``, which nobody but this app sees. Secrets
have files of their own there. Begun as root, as apps are, for ``/data`` and ``/config`` are root's,
the agent itself runs as a user without rights.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from annotated_types import MaxLen
from pydantic import ValidationError

from federator.config.brokers import BrokerName, Url
from federator.config.complaints import first_complaint
from federator.config.section import BrokerNumber, Name, Section, Switch
from federator.config.security import Security
from federator.config.topics import TopicFilters
from federator.config.validation import validated
from federator.errors import ConfigError
from federator.protocol.messages.control import NEIGHBOURS_MAX
from federator.runtime.storage.durable import PRIVATE_FOLDER, open_private

SUPERVISOR: Final = "http://supervisor"
SUPERVISOR_TIMEOUT_S: Final = 10.0
SERVICE_WAIT_S, SERVICE_POLL_S = 60.0, 2.0
SERVICE_BYTES_MAX: Final = 65_536
AGENT_USER: Final = 10001
HTTP_PORT: Final = 9883


class Options(Section):
    """What a user sets on the app's page, by the names of ``config.yaml``."""

    broker_id: BrokerNumber
    broker_name: BrokerName = ""
    federation: Name = "fed"
    neighbours: Annotated[tuple[Url, ...], MaxLen(NEIGHBOURS_MAX)] = ()
    reachable_at: Url | None = None
    security: Security = "signed"
    agent_key: str | None = None
    federation_key: str | None = None
    links_username: str | None = None
    links_password: str | None = None
    ca_file: str | None = None
    keep: TopicFilters = ()
    deny: TopicFilters = ()
    discovery: Switch = True
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    broker_url: Url | None = None
    broker_username: str | None = None
    broker_password: str | None = None


@dataclass(frozen=True)
class Folders:
    """Where the Supervisor puts things: ``/data``, ``/config``, ``/ssl``."""

    data: Path
    config: Path
    ssl: Path

    @property
    def private(self) -> Path:
        """What is written here: the configuration and its secrets."""
        return self.data / "agent"

    @property
    def state(self) -> Path:
        """What the agent keeps from one start to the next."""
        return self.data / "state"


@dataclass(frozen=True)
class Login:
    """The broker beside the agent."""

    url: str
    username: str | None
    password: str | None


def mistake(text: str) -> ConfigError:
    """``text`` as the one line with which the app ends."""
    return ConfigError(text, exit_code=os.EX_CONFIG)


def read_options(file: Path) -> Options:
    """The options, checked. Raises ``ConfigError``, which names the option."""
    try:
        told = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise mistake(f"{file}: {error}: start this as an app of Home Assistant") from None
    if not isinstance(told, dict):
        raise mistake(f"{file}: it should be a table of options")
    given = {name: value for name, value in told.items() if value not in (None, "")}
    try:
        return validated(Options, given)
    except ValidationError as error:
        _, text = first_complaint(error, Options, lambda _: None)
        raise mistake(f"options: {text}") from None


def broker_of(options: Options, supervisor: str, wait_s: float) -> Login:
    """The broker that the options name, or that the Supervisor knows of."""
    if options.broker_url is not None:
        return Login(options.broker_url, options.broker_username, options.broker_password)
    for name in ("broker_username", "broker_password"):
        if getattr(options, name) is not None:
            raise mistake(f"options: {name} without broker_url: add broker_url, or remove {name}")
    service = mqtt_service(supervisor, wait_s)
    try:
        host, port = str(service["host"]), int(service["port"])
    except (KeyError, TypeError, ValueError):
        raise mistake("the service mqtt has no host and port: set broker_url") from None
    scheme = "mqtts" if service.get("ssl") is True else "mqtt"
    username, password = service.get("username"), service.get("password")
    return Login(f"{scheme}://{host}:{port}", username or None, password or None)


def mqtt_service(supervisor: str, wait_s: float) -> dict[str, Any]:
    """What the Supervisor says of the service ``mqtt``, once there is one.

    Args:
        supervisor: Its URL.
        wait_s: How long the broker's app may take to come up after the machine did.

    Raises ``ConfigError``: there is none, or nobody to ask.
    """
    mend = "install and start the app Mosquitto broker, or set broker_url"
    token = os.environ.get("SUPERVISOR_TOKEN")
    if not token:
        raise mistake("options: broker_url is missing, and no Supervisor to ask: set broker_url")
    bearer = {"Authorization": f"Bearer {token}"}
    request = Request(f"{supervisor}/services/mqtt", headers=bearer)
    end = time.monotonic() + wait_s
    while True:
        try:
            with urlopen(request, timeout=SUPERVISOR_TIMEOUT_S) as answer:
                told = json.loads(answer.read(SERVICE_BYTES_MAX))
            if isinstance(told, dict) and isinstance(told.get("data"), dict):
                data: dict[str, Any] = told["data"]
                return data
            why = "no answer that can be read"
        except HTTPError as error:
            why = f"status {error.code}"
        except (OSError, HTTPException, ValueError) as error:
            why = str(error)
        if time.monotonic() > end:
            raise mistake(f"Home Assistant knows of no MQTT broker ({why}): {mend}")
        time.sleep(SERVICE_POLL_S)


def secret(folders: Folders, name: str, text: str, option: str) -> str:
    """The file, closed to others, that now holds a password."""
    if not text.isprintable():
        raise mistake(f"options: {option} holds a line break or another control character")
    return put(folders.private / name, text.encode() + b"\n")


def put(file: Path, content: bytes) -> str:
    """Write a file that only its user may read."""
    with open(open_private(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as opened:
        opened.write(content)
    return str(file)


def key_files(options: Options, folders: Folders) -> dict[str, object]:
    """``[keys]``: from the options' text, or else from the files in the app's folder."""
    if options.security == "open":
        return {}
    named, issue = f"agent-{options.broker_id}.key", f"issue --broker {options.broker_id}"
    found = {}
    for option, text, name, maker in (
        ("agent_key", options.agent_key, named, issue),
        ("federation_key", options.federation_key, "federation.pub", "init"),
    ):
        file = folders.config / name
        content = None if text is None else text.encode()
        if content is None:
            try:
                content = file.read_bytes()
            except OSError:
                where = f"put {name}, made by federator keys {maker}, into the app's folder in "
                where += "addon_configs"
                raise mistake(f"no {file}: {where}, or its text into {option}") from None
        found[option] = put(folders.private / name, content)
    return {"agent_file": found["agent_key"], "federation_files": [found["federation_key"]]}


def settings(options: Options, broker: Login, folders: Folders) -> dict[str, Any]:
    """What ``federator.toml`` says. Writes the files that it names."""
    own: dict[str, object] = {"id": options.broker_id, "url": broker.url}
    own |= {"name": options.broker_name} if options.broker_name else {}
    own |= {"advertise": options.reachable_at} if options.reachable_at else {}
    links: dict[str, object] = {} if options.reachable_at else {"dial": "out"}
    for section, who, username, password in (
        (own, "broker", broker.username, broker.password),
        (links, "links", options.links_username, options.links_password),
    ):
        section |= {"username": username} if username else {}
        if password is not None:
            file = secret(folders, f"{who}.password", password, f"{who}_password")
            section["password_file"] = file
    if options.ca_file is not None:
        ca_file = folders.ssl / options.ca_file
        if not ca_file.is_file():
            raise mistake(f"options: ca_file = {options.ca_file!r}: no {ca_file}")
        links["ca_file"] = put(folders.private / "ca.pem", ca_file.read_bytes())
    return {
        "federation": options.federation,
        "security": options.security,
        "state_dir": str(folders.state),
        "broker": own,
        "neighbours": [{"url": url} for url in options.neighbours],
        "links": links,
        "keys": key_files(options, folders),
        "rules": {"keep": options.keep, "deny": options.deny},
        "home_assistant": {"discovery": options.discovery},
        "http": {"host": "0.0.0.0", "port": HTTP_PORT, "allow_remote": True},
        "log": {"level": options.log_level},
    }


def toml(told: Mapping[str, Any]) -> str:
    """Tables of one level, and lists of them, as TOML, in which JSON's texts are texts, too."""
    lines = ["# Written by start_agent.py from the app's options at each start."]

    def write(table: Mapping[str, object]) -> None:
        lines.extend(f"{key} = {json.dumps(table[key], ensure_ascii=False)}" for key in table)

    write({key: value for key, value in told.items() if not isinstance(value, dict | list)})
    for key, value in told.items():
        for table in value if isinstance(value, list) else [value]:
            if isinstance(table, dict):
                lines.extend(["", f"[[{key}]]" if isinstance(value, list) else f"[{key}]"])
                write(table)
    return "\n".join(lines) + "\n"


def prepare(folders: Folders, supervisor: str, wait_s: float) -> Path:
    """Write everything the agent reads, and give the name of its configuration."""
    options = read_options(folders.data / "options.json")
    broker = broker_of(options, supervisor, wait_s)
    shutil.rmtree(folders.private, ignore_errors=True)
    folders.private.mkdir(PRIVATE_FOLDER)
    folders.state.mkdir(PRIVATE_FOLDER, exist_ok=True)
    text = toml(settings(options, broker, folders))
    return Path(put(folders.private / "federator.toml", text.encode()))


def leave_root(folders: Folders, user: int) -> None:
    """Give the agent's user what is its own, and become that user."""
    if os.geteuid() != 0:
        return
    for top in (folders.private, folders.state):
        for file in (top, *top.rglob("*")):
            os.chown(file, user, user, follow_symlinks=False)
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def main() -> int:
    """Exit code of a mistake; without one this process becomes the agent."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="end before the agent starts")
    for name in ("data", "config", "ssl"):
        parser.add_argument(f"--{name}", type=Path, default=Path("/", name), metavar="FOLDER")
    parser.add_argument("--user", type=int, default=AGENT_USER, metavar="ID")
    parser.add_argument("--supervisor", default=SUPERVISOR, metavar="URL")
    parser.add_argument("--wait", type=float, default=SERVICE_WAIT_S, metavar="SECONDS")
    given = parser.parse_args()
    folders = Folders(*(each.absolute() for each in (given.data, given.config, given.ssl)))
    try:
        file = prepare(folders, given.supervisor, given.wait)
        leave_root(folders, given.user)
    except (ConfigError, OSError) as error:
        print(f"federator: {error}", file=sys.stderr)
        return getattr(error, "exit_code", os.EX_OSFILE)
    federator = [sys.executable, "-m", "federator"]
    checked = subprocess.run([*federator, "check-config", "-c", file], check=False)
    if checked.returncode == 0 and not given.check:
        os.execv(sys.executable, [*federator, "run", "-c", str(file)])
    return checked.returncode


if __name__ == "__main__":
    sys.exit(main())

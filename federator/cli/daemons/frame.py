"""What the verbs of daemons share: where settings come from, and how they are checked or served."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click

from federator.cli.options import CONFIG_FOLDER, config_file, together
from federator.config.all_brokers.collector import CollectorSettings, FollowingSettings
from federator.config.all_brokers.console import ConsoleSettings
from federator.config.all_brokers.steerer import SteererSettings
from federator.config.gateway import GatewaySettings
from federator.config.reload import reloaded
from federator.runtime.process import logs
from federator.runtime.process.reloading import Source

_Verb = TypeVar("_Verb", bound=Callable[..., object])
_Settings = TypeVar(
    "_Settings", GatewaySettings, CollectorSettings, SteererSettings, ConsoleSettings
)

check_option = click.option("--check", is_flag=True, help="Read the configuration and stop there.")


def usual_file(name: str) -> Path | None:
    """The file of that name in the usual folder, if it is there."""
    path = CONFIG_FOLDER / name
    return path if path.exists() else None


def following_options(file: str, variable: str) -> Callable[[_Verb], _Verb]:
    """The options of a daemon that reads all brokers of a federation: where it begins."""
    return together(
        click.option(
            "--broker",
            "brokers",
            multiple=True,
            metavar="URL",
            help="A broker to begin with, mqtt://HOST[:PORT], mqtts://, ws:// or wss://; any one "
            "finds the others. May be given more than once.",
        ),
        config_file(
            f"${variable} or {CONFIG_FOLDER / file}, if it exists",
            envvar=variable,
            default=lambda: usual_file(file),
        ),
        click.option("--only", is_flag=True, help="Keep to the brokers given; look for no others."),
        check_option,
    )


def require_broker(config: Path | None, brokers: Sequence[str]) -> None:
    """Raise ``UsageError`` when nothing names a broker."""
    if config is None and not brokers and "FEDERATOR_BROKERS" not in os.environ:
        raise click.UsageError("--broker URL is missing, and there is no configuration")


def begins_at(settings: FollowingSettings) -> str:
    """The brokers where a daemon begins that reads all of them."""
    return f"from {', '.join(broker.url for broker in settings.brokers)}"


def check_or_serve(
    read: Callable[[], _Settings],
    serve: Callable[[_Settings, Source[_Settings]], None],
    *,
    check: bool,
    about: Callable[[_Settings], str],
) -> None:
    """Read the settings; then ``serve`` until a signal, or with ``check`` print ``about`` them."""
    settings = read()
    if check:
        click.echo(f"{about(settings)}: the configuration can be used")
        return
    logs.configure(settings.log)
    serve(settings, Source(read, reloaded, logs.set_level))

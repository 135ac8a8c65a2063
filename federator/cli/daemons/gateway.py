"""``federator gateway``: the proxy that clients connect to, until SIGTERM or SIGINT."""

import os
from functools import partial
from pathlib import Path

import click

from federator.cli.daemons.frame import check_option, check_or_serve
from federator.cli.options import CONFIG_FOLDER, config_file
from federator.config.gateway import GatewaySettings
from federator.config.reading import load_gateway
from federator.gateway import app

VARIABLE = "FEDERATOR_GATEWAY_CONFIG"
DEFAULT_CONFIG = CONFIG_FOLDER / "gateway.toml"


@click.command(name="gateway")
@config_file(f"${VARIABLE} or {DEFAULT_CONFIG}", envvar=VARIABLE, default=DEFAULT_CONFIG)
@check_option
def command(config: Path, check: bool) -> None:
    """Be a gateway: clients that connect to it outlive their brokers.

    SIGTERM lets publications be acknowledged, tells the clients, and leaves. SIGHUP reads the
    configuration again: log.level changes at once, and the log names what takes a restart.
    """
    read = partial(load_gateway, config, os.environ)
    check_or_serve(read, app.serve, check=check, about=_about)


def _about(settings: GatewaySettings) -> str:
    brokers = ", ".join(str(broker.id) for broker in settings.brokers)
    return f"gateway {settings.name}, brokers {brokers}"

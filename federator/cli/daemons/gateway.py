"""``federator gateway``: the proxy that clients connect to, until SIGTERM or SIGINT."""

import os
from functools import partial
from pathlib import Path

import click

from federator.cli.options import config_file
from federator.config.reading import load_gateway
from federator.config.reload import reloaded
from federator.gateway import app
from federator.runtime.process import logs
from federator.runtime.process.reloading import Source

DEFAULT_CONFIG = Path("/etc/federator/gateway.toml")


@click.command(name="gateway")
@config_file(f"$FEDERATOR_GATEWAY_CONFIG or {DEFAULT_CONFIG}")
@click.option("--check", is_flag=True, help="Read the configuration and stop there.")
def command(config: Path | None, check: bool) -> None:
    """Be a gateway: clients that connect to it outlive their brokers.

    SIGTERM lets publications be acknowledged, tells the clients, and leaves. SIGHUP reads the
    configuration again: log.level changes at once, and the log names what takes a restart.
    """
    path = config or Path(os.environ.get("FEDERATOR_GATEWAY_CONFIG", DEFAULT_CONFIG))
    settings = load_gateway(path, os.environ)
    if check:
        brokers = ", ".join(str(broker.id) for broker in settings.brokers)
        click.echo(f"gateway {settings.name}, brokers {brokers}: the configuration can be used")
        return
    logs.configure(settings.log)
    read = partial(load_gateway, path, os.environ)
    app.serve(settings, Source(read, reloaded, logs.set_level))

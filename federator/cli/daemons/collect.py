"""``federator collect``: land the metrics streams of a federation, until SIGTERM or SIGINT."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from federator.cli.agent_pages import get
from federator.cli.daemons.frame import (
    begins_at,
    check_or_serve,
    following_options,
    require_broker,
)
from federator.cli.observe.status import shown, table
from federator.cli.options import PLACE, columns, print_result
from federator.collector import app
from federator.config.reading import load_collector


@click.command(name="collect")
@click.option("--to", "landing", type=PLACE, help="Folder to land files in.")
@following_options("collector.toml", "FEDERATOR_COLLECTOR_CONFIG")
@click.option(
    "--status",
    "status_of",
    metavar="URL",
    help="Show how the collector at http://HOST:PORT is doing, and stop there.",
)
@click.option("--json", "as_json", is_flag=True, help="With --status: its answer as it is.")
def command(
    landing: Path | None,
    brokers: tuple[str, ...],
    config: Path | None,
    only: bool,
    check: bool,
    status_of: str | None,
    as_json: bool,
) -> int:
    """Land the metrics streams of a whole federation in a folder, each record exactly once.

    It may be killed and started again at any moment, and so may agents and brokers. SIGTERM lands
    what is in memory and leaves. SIGHUP reads the configuration again: log.level changes at once,
    and the log names what takes a restart.
    """
    if status_of is not None:
        status = get(status_of.rstrip("/"), "/status")
        print_result(status, as_text(status), as_json=as_json)
        return 0 if status.get("ready") else 1
    if config is None and landing is None and "FEDERATOR_LANDING" not in os.environ:
        raise click.UsageError("--to FOLDER is missing, and there is no configuration")
    require_broker(config, brokers)
    read = partial(load_collector, config, os.environ, landing=landing, brokers=brokers, only=only)
    about = lambda settings: f"to {settings.landing} {begins_at(settings)}"  # noqa: E731
    check_or_serve(read, app.serve, check=check, about=about)
    return 0


def as_text(status: Mapping[str, Any]) -> list[str]:
    """The status for people: what hinders first, then brokers, spools, counters."""
    state = "ready" if status.get("ready") else f"NOT READY: {status.get('ready_reason', '')}"
    lines = [
        f"federation {status.get('federation')} to {status.get('landing')}: {state}",
        f"{status.get('files')} files, {status.get('bytes')} bytes",
    ]
    if unreached := status.get("unreached"):
        lines.append(f"no address that works is known of brokers {shown(unreached)}")
    for title in ("brokers", "spools"):
        lines += ["", f"{title}:", *table(status.get(title, []))]
    pairs = [(k, shown(v)) for k, v in status.get("counters", {}).items() if v]
    lines += ["", "counters:", *(columns(pairs, indent=2) if pairs else ["  nothing yet"])]
    return lines

"""``federator-analytics serve TABLES``: a dashboard that keeps itself current."""

import ipaddress
import time
from pathlib import Path

import click
import uvicorn

from federator.console.listener import PagesConfig, listening
from federator_analytics.dashboard.app import LOOPBACK_NAMES, application
from federator_analytics.errors import UnavailableError, UsageError

PORT = 8650


@click.command("serve")
@click.argument("tables", type=click.Path(path_type=Path))
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(0, 65_535))
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--stale-after",
    "stale_after_s",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Seconds after which the page says that its newest record is old.",
)
@click.option(
    "--console",
    default="",
    metavar="URL",
    callback=lambda _context, _parameter, url: _link(url),
    help="Where `federator console` shows what is now, as browsers reach it: the page leads there.",
)
def command(tables: Path, port: int, host: str, stale_after_s: float, console: str) -> None:
    """Show a dashboard over TABLES, a folder that `report` or `stream` keeps.

    The tables may be replaced while it runs, and need not be there yet. There is no password: it
    listens on this machine only, unless --host says otherwise.
    """
    if not tables.exists():
        click.echo(f"{tables}: no such folder yet: waiting for report or stream", err=True)
    elif not tables.is_dir():
        raise UsageError(f"{tables}: is a file, and a folder of tables is wanted")
    try:
        listener = listening(host, port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnavailableError(f"cannot listen on {host} port {port}: {reason}") from error
    with listener:
        at = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"http://{shown}:{at}/")
        if not _is_loopback(host):
            click.echo(
                "warning: whoever reaches this port sees the dashboard: no password", err=True
            )
        names = LOOPBACK_NAMES if _is_loopback(host) else ("*",)
        app = application(
            tables, names=names, stale_after_s=stale_after_s, now_s=time.time, console=console
        )
        uvicorn.Server(PagesConfig(app)).run(sockets=[listener])


def _link(url: str) -> str:
    if url and not url.startswith(("http://", "https://")):
        raise click.BadParameter("http://HOST:PORT or https://HOST:PORT wanted")
    return url


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

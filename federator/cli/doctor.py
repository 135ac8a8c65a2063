"""``federator doctor``: what the broker can do, and the exact lines it lacks."""

import asyncio
import json
from dataclasses import asdict
from pathlib import Path

import click

from federator.cli.options import columns, config_option, settings_from
from federator.config import Settings
from federator.errors import ConfigError
from federator.runtime.diagnosis import Report, judge
from federator.runtime.doctor import SYSTEM_SECONDS_MAX, examine
from federator.runtime.probe import RefusedError

_MARKS = {"ok": "ok", "warn": "WARN", "fail": "FAIL"}


@click.command(name="doctor")
@config_option
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.option(
    "--wait",
    "system_seconds",
    type=click.FloatRange(0, 600),
    default=SYSTEM_SECONDS_MAX,
    show_default=True,
    help="Seconds to wait for $SYS topics; more than the broker's sys_interval.",
)
def command(config: Path | None, as_json: bool, system_seconds: float) -> int:
    """Ask the broker whether it can take part, and what is missing.

    Exits 0 when it can, 78 when its configuration must be mended, 77 when it refuses our
    credentials, 69 when it cannot be reached.
    """
    settings = settings_from(config)
    try:
        facts = asyncio.run(examine(settings, system_seconds_max=system_seconds))
    except RefusedError as error:
        raise ConfigError(
            f"{error}: check broker.username and password", exit_code=error.exit_code
        ) from error
    report = judge(facts, settings)
    click.echo(_as_json(report) if as_json else "\n".join(_as_text(report, settings)))
    return report.exit_code


def _as_json(report: Report) -> str:
    return json.dumps({**asdict(report), "exit_code": report.exit_code}, indent=2)


def _as_text(report: Report, settings: Settings) -> list[str]:
    lines = [f"broker {settings.broker.id} at {settings.broker.url}", ""]
    rows = [
        (_MARKS[f.outcome], f.name, f.found, f.mend and f"-> {f.mend}") for f in report.findings
    ]
    lines += columns(rows)
    if report.config_lines:
        lines += ["", "Add to mosquitto.conf (keep your own log_dest lines), then reload it:", ""]
        lines += [f"    {line}" for line in report.config_lines]
    if report.acl_lines:
        lines += ["", "Add to its acl_file:", ""]
        lines += [f"    {line}" for line in report.acl_lines]
    lines += ["", "can take part" if report.exit_code == 0 else "cannot take part yet"]
    return lines

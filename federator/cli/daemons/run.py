"""``federator run``: the daemon, in the foreground, until SIGTERM or SIGINT."""

from os import EX_CONFIG, EX_UNAVAILABLE
from pathlib import Path

import click

from federator.cli.options import config_option
from federator.errors import ConfigError, LinkError
from federator.runtime.agent import process


@click.command(name="run")
@config_option
@click.option(
    "--fail-fast",
    is_flag=True,
    help="Exit when the broker cannot be reached, refuses us or lacks log topics, instead of "
    "trying again for ever.",
)
def command(config: Path | None, fail_fast: bool) -> None:
    """Be the agent of one broker, until stopped.

    SIGTERM and SIGINT leave the federation cleanly: neighbours learn at once. SIGHUP reads the
    configuration again: neighbours, what links cost, rules (of leaves, too) and log.level change at
    once, and the log names what takes a restart, or what is wrong.
    """
    if fail_fast:
        _check_broker(config)
    process.be_agent(config)


def _check_broker(config: Path | None) -> None:
    """What ``--fail-fast`` asks for, before anything is started; a refusal says what to mend."""
    # Only this path needs pydantic and half of an agent; the daemon runs without them.
    from federator.cli.daemons.agent_settings import settings_of  # noqa: PLC0415
    from federator.cli.setup.doctor import diagnosed  # noqa: PLC0415
    from federator.runtime.process import logs  # noqa: PLC0415

    settings, _ = settings_of(config)
    logs.configure(settings.log)
    try:
        report = diagnosed(settings, system_seconds_max=0)
    except LinkError as error:
        key = "broker.socket" if settings.broker.socket else "broker.url"
        text = f"{error}: start it, or correct {key}"
        raise ConfigError(text, exit_code=EX_UNAVAILABLE) from error
    if failed := [finding for finding in report.findings if finding.outcome == "fail"]:
        lines = "; ".join((*report.config_lines, *report.acl_lines))
        what = f"{settings.broker.reached_at}: {failed[0].name}: {failed[0].found}"
        raise ConfigError(f"{what}: add to mosquitto.conf: {lines}", exit_code=EX_CONFIG)

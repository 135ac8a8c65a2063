"""``federator doctor``: checks whether the broker can take part, and prints the lines it lacks.

It connects to the broker, and to the neighbours' brokers, as the agent would, and publishes there
on topics of its own. It checks that the agent's state folder could be written. No file is changed,
and only ``--write`` creates one. ``--acl`` prints an acl_file without connecting.

``run --fail-fast`` makes the same diagnosis. The checks themselves are in ``runtime.doctor``.
"""

import asyncio
import errno
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import click

from federator.cli.options import (
    FILE,
    columns,
    config_option,
    json_option,
    option,
    print_result,
    settings_from,
    together,
    write_new,
)
from federator.config.settings import Settings
from federator.errors import ConfigError
from federator.protocol.types import BROKER_ID_MAX
from federator.runtime.doctor.access_list import AGENT, ROLES, access_list
from federator.runtime.doctor.diagnosis import Finding, Outcome, Report, judge
from federator.runtime.doctor.doctor import SYSTEM_SECONDS_MAX, examine
from federator.runtime.mqtt.probe import RefusedError
from federator.runtime.storage.durable import SHARED_FILE
from federator.runtime.storage.state_dir import require_room

CONFIG_HEAD = (
    "# What an agent of federator needs beyond what mosquitto.conf says; see `federator doctor`."
)

_MARKS = {"ok": "ok", "warn": "WARN", "fail": "FAIL"}


def _check_users(
    context: object, parameter: object, given: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    """Check that a line of an acl_file can contain each user name; return them."""
    for name in (given,) if isinstance(given, str) else given or ():
        if not (name.isprintable() and name == name.strip() != ""):
            text = f"{name!r}: printable characters wanted, no spaces at the ends"
            raise click.BadParameter(text)
    return given


def _parse_outbound(context: object, parameter: object, given: tuple[str, ...]) -> dict[str, int]:
    """Parse ``ID=USER`` or ``ID``: the broker id of each user."""
    ids: dict[str, int] = {}
    for text in given:
        id_, _, user = text.partition("=")
        if not (id_.isascii() and id_.isdigit() and int(id_) <= BROKER_ID_MAX):
            raise click.BadParameter(f"{text!r}: a broker id wanted, and =USER behind it")
        ids[user or f"{AGENT}-{int(id_)}"] = int(id_)
    _check_users(context, parameter, tuple(ids))
    return ids


def _role_option(role: str, *, of: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """``--ROLE USER``, which may be repeated: the users of one role in the acl_file."""
    about = f"With --acl: a user of {of}"
    return click.option(f"--{role}", f"{role}s", multiple=True, callback=_check_users, help=about)


@click.command(name="doctor")
@config_option
@json_option
@option(
    "--wait",
    "system_seconds",
    type=click.FloatRange(0, 600),
    default=SYSTEM_SECONDS_MAX,
    help="Seconds to wait for $SYS topics; more than the broker's sys_interval.",
)
@click.option(
    "--write",
    "write_to",
    type=FILE,
    help="Write the lines missing from mosquitto.conf to a new file of its include_dir, such as "
    "/etc/mosquitto/conf.d/federator.conf.",
)
@click.option(
    "--acl", "as_acl", is_flag=True, help="Print an acl_file for the broker instead: least rights."
)
@click.option(
    "--user", callback=_check_users, help=f"With --acl: the agent. [broker.username or {AGENT}]"
)
@_role_option("peer", of=f"other agents. [links.username or {AGENT}-peer]")
@click.option(
    "--outbound",
    multiple=True,
    metavar="ID[=USER]",
    callback=_parse_outbound,
    help=f'With --acl: an agent with dial = "out", and its user. [{AGENT}-ID]',
)
@together(*(_role_option(role, of=f"{role}s. [{AGENT}-{role}]") for role in ROLES))
def command(
    config: Path | None,
    as_json: bool,
    system_seconds: float,
    write_to: Path | None,
    as_acl: bool,
    user: str | None,
    peers: tuple[str, ...],
    outbound: dict[str, int],
    **users: tuple[str, ...],
) -> int:
    """Ask the broker whether it can take part, and what is missing.

    Exits 0 when it can, 78 when its configuration must be mended, 77 when it refuses our
    credentials, 69 when it cannot be reached.

    --write never writes over a file. Lines that are there already, such as another log_dest, stay.

    With --acl the broker is not asked: what it should allow is written from the configuration.
    """
    settings = settings_from(config)
    if as_acl:
        lines = access_list(
            settings,
            agent=user or settings.broker.username or AGENT,
            peers=peers or (settings.links.username or f"{AGENT}-peer",),
            outbound=outbound,
            users={role: users[f"{role}s"] or (f"{AGENT}-{role}",) for role in ROLES},
        )
        click.echo("\n".join(lines))
        if user is None and settings.broker.username is None:
            what = "the agent has no user of its own here: anybody could be it"
            click.echo(f"federator: {what}: set broker.username, or name its --user", err=True)
        return 0
    report = diagnosed(settings, system_seconds_max=system_seconds)
    if write_to is not None and report.config_lines:
        text = "\n".join((CONFIG_HEAD, *report.config_lines, ""))
        write_new(write_to, text.encode(), mode=SHARED_FILE)
    record = {**asdict(report), "exit_code": report.exit_code}
    print_result(record, _as_text(report, settings), as_json=as_json)
    if write_to is not None:
        advice = "have the broker read it" if report.config_lines else "nothing to write"
        click.echo(f"federator: {write_to}: {advice}", err=True)
    return report.exit_code


def diagnosed(settings: Settings, *, system_seconds_max: float) -> Report:
    """Connect to the broker and judge it, and the state folder.

    Raises:
        ConfigError: The broker refuses our credentials.
        LinkError: It cannot be reached.
    """
    try:
        facts = asyncio.run(examine(settings, system_seconds_max=system_seconds_max))
    except RefusedError as error:
        text = f"{error}: check broker.username and password"
        raise ConfigError(text, exit_code=error.config_exit_code) from error
    report = judge(facts, settings)
    return replace(report, findings=(*report.findings, room(settings)))


def room(settings: Settings) -> Finding:
    """Check whether our user could write the agent's state folder, without creating it."""
    try:
        require_room("state_dir", settings.state_dir)
    except ConfigError as error:
        full = os.strerror(errno.ENOSPC) in str(error)
        outcome: Outcome = "fail" if full else "warn"  # the agent may be another user's
        return Finding("state folder", outcome, str(error), "as the agent's user, check-config")
    return Finding("state folder", "ok", f"{settings.state_dir}: can be written")


def _as_text(report: Report, settings: Settings) -> list[str]:
    lines = [f"broker {settings.broker.id} at {settings.broker.reached_at}", ""]
    rows = [
        (_MARKS[f.outcome], f.name, f.found, f.mend and f"-> {f.mend}") for f in report.findings
    ]
    lines += columns(rows)
    then = "restart" if report.takes_restart else "reload"
    for where, wanted in (
        (f"mosquitto.conf (keep your own log_dest lines), then {then} it", report.config_lines),
        ("its acl_file", report.acl_lines),
    ):
        if wanted:
            lines += ["", f"Add to {where}:", "", *(f"    {line}" for line in wanted)]
    return [*lines, "", "can take part" if report.exit_code == 0 else "cannot take part yet"]

"""``federator check-config``: read the configuration as ``run`` would, and stop there."""

import json
from pathlib import Path

import click

from federator.cli.options import config_option, json_option, named, print_result, settings_from
from federator.config.reference import DAEMONS, reference
from federator.config.reload import taken_by_reload
from federator.config.schemas import schema
from federator.config.settings import Settings
from federator.runtime.storage.state_dir import require_room


@click.command(name="check-config")
@config_option
@click.option("--reference", "show_reference", is_flag=True, help="Print every key, as Markdown.")
@click.option(
    "--schema",
    "schema_of",
    type=click.Choice(list(DAEMONS)),
    help="Print the JSON Schema of what this daemon reads, for editors.",
)
@json_option
def command(
    config: Path | None, show_reference: bool, schema_of: str | None, as_json: bool
) -> None:
    """Say whether a configuration can be used, and which keys a running agent takes up.

    Nothing is connected to.
    """
    if show_reference:
        click.echo(reference(), nl=False)
        return
    if schema_of is not None:
        click.echo(json.dumps(schema(schema_of), indent=2, ensure_ascii=False))
        return
    settings = settings_from(config)
    settings.require(named(config))
    require_room("state_dir", settings.state_dir)
    for notice in settings.notices():
        details = " ".join(f"{key}={value}" for key, value in notice.details.items())
        click.echo(f"federator: {notice.level}: {notice.name} {details}", err=True)
    neighbours, live = len(settings.neighbours), list(taken_by_reload(Settings))
    record = {
        "broker": settings.broker.id,
        "url": settings.broker.reached_at,
        "federation": settings.federation,
        "neighbours": neighbours,
        "taken_by_reload": live,
    }
    text = (
        f"broker {settings.broker.id} at {settings.broker.reached_at}, "
        f"federation {settings.federation}, "
        f"{neighbours} neighbour{'' if neighbours == 1 else 's'}: the configuration can be used\n"
        f"a reload (SIGHUP) takes up {'; '.join(map(_with_exceptions, live))}\n"
        "any other key takes a restart"
    )
    print_result(record, [text], as_json=as_json)


def _with_exceptions(key: str) -> str:
    name, but, exceptions = key.partition(" but ")
    return f"{name} (not {exceptions})" if but else name

"""``federator place cores``: priorities that put each mesh's core where its traffic is.

LINKS is JSON, ``[[1, 2], [2, 3]]``; the state file of ``federator-lab grid --state`` is taken too.
"""

import json
import os
import time
from pathlib import Path

import click

from federator.cli.options import FOLDER, PLACE, columns, option
from federator.cli.planning.files import read_text
from federator.errors import ConfigError, DecodeError
from federator.planner.delegation.live import BAD_DATA, parse
from federator.planner.flow.instance_file import FILE_BYTES_MAX
from federator.planner.placement.cores import CorePlan, PlacementError, place_cores
from federator.protocol.messages.fields import json_value
from federator.runtime.agent.priority_file import FILE_NAME, VALID_MS_MAX
from federator.runtime.storage.durable import SHARED_FILE, write_whole


@click.command(name="cores")
@click.option("--from", "traffic", type=PLACE, required=True, help="Traffic, as JSON.")
@click.option("--links", type=PLACE, required=True, help="Pairs of brokers, as JSON.")
@click.option(
    "--write",
    type=FOLDER,
    help=f"Write ID/{FILE_NAME} into this folder, one per broker, for the agents' state folders.",
)
@option(
    "--valid-s",
    type=click.IntRange(1, VALID_MS_MAX // 1000),
    default=3_600,
    help="How long agents shall believe it.",
)
@click.option("--json", "as_json", is_flag=True, help="Everything as one JSON object.")
def command(traffic: Path, links: Path, write: Path | None, valid_s: int, as_json: bool) -> None:
    """Compute each broker's priority as a core from the traffic.

    Agents with mesh.core = "placed" follow it while it is valid.
    """
    description = parse(read_text(traffic), name=str(traffic))
    pairs = parse_links(read_text(links), name=str(links))
    try:
        plan = place_cores(description.brokers, pairs)
    except PlacementError as error:
        raise ConfigError(f"{links}: {error}: mend it", exit_code=BAD_DATA) from None
    if write is not None:
        _write(plan, write, valid_s)
    if as_json:
        costs = {name: getattr(plan, name) for name in ("cost", "smallest_id_cost", "lower_bound")}
        click.echo(json.dumps({"priorities": plan.priorities, **costs}))
        return
    rows = [("broker", "priority")]
    rows += [(str(id), str(p)) for id, p in sorted(plan.priorities.items(), key=lambda e: e[1])]
    click.echo("\n".join(columns(rows)))
    was, now, least = plan.smallest_id_cost, plan.cost, plan.lower_bound
    click.echo(f"messages x hops per second: {now:g}; by smallest id {was:g}; at least {least:g}")


def parse_links(text: str, *, name: str) -> list[tuple[int, int]]:
    """Pairs of ids. Raises ``ConfigError``: one line that says what to mend."""
    try:
        value = json_value(name, text.encode(), FILE_BYTES_MAX)
    except DecodeError as error:
        raise ConfigError(f"{error}: mend the file", exit_code=BAD_DATA) from None
    if isinstance(value, dict):
        found = value.get("links")
        each_named = isinstance(found, list) and all(isinstance(each, dict) for each in found)
        value = [[e.get("a"), e.get("b")] for e in found or ()] if each_named else None
    if not isinstance(value, list):
        raise ConfigError(f"{name}: a list of [ID, ID] is wanted: mend it", exit_code=BAD_DATA)
    for pair in value:
        whole = isinstance(pair, list) and len(pair) == 2 and all(type(i) is int for i in pair)
        if not whole:
            text = f"{name}: {str(pair)[:60]} is not [ID, ID]: mend it"
            raise ConfigError(text, exit_code=BAD_DATA)
    return [(a, b) for a, b in value]


def _write(plan: CorePlan, folder: Path, valid_s: int) -> None:
    until_ms = time.time_ns() // 1_000_000 + valid_s * 1000
    for id, priority in plan.priorities.items():
        content = json.dumps({"priority": priority, "valid_until_ms": until_ms}) + os.linesep
        try:
            (folder / str(id)).mkdir(parents=True, exist_ok=True)
            write_whole(folder / str(id) / FILE_NAME, content.encode(), mode=SHARED_FILE)
        except OSError as error:
            text = f"{folder}: {error.strerror}: name a folder this user may write"
            raise ConfigError(text, exit_code=os.EX_CANTCREAT) from None

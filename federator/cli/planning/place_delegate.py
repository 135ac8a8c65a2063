"""``federator place delegate``: filters that each edge broker owns, and its agent's rules."""

import json
from collections.abc import Sequence
from os import EX_CANTCREAT, EX_DATAERR
from pathlib import Path

import click

from federator.cli.options import FOLDER, PLACE, columns, option
from federator.cli.planning.files import read_text
from federator.config.gateway import UPSTREAM_FILTERS_MAX
from federator.config.topics import CONFIGURED_FILTERS_MAX
from federator.errors import ConfigError
from federator.planner.delegation.live import Edge, parse, plan
from federator.planner.delegation.policies import Policy

_LIVE = [policy.value for policy in Policy if policy is not Policy.SF and policy is not Policy.EMMA]


@click.command(name="delegate")
@click.option("--from", "traffic", type=PLACE, required=True, help="Traffic, as JSON.")
@option("--policy", type=click.Choice(_LIVE), default="ns")
@click.option(
    "--write",
    type=FOLDER,
    help="Write into this folder, per edge broker, rules-ID.toml for its agent's configuration and "
    "upstreams-ID.toml for a gateway's.",
)
@click.option("--json", "as_json", is_flag=True, help="Everything as one JSON object.")
def command(traffic: Path, policy: str, write: Path | None, as_json: bool) -> None:
    """Say which filters each edge broker should own, and write its rules."""
    try:
        edges = plan(parse(read_text(traffic), name=str(traffic)), Policy(policy))
    except ValueError as error:
        raise ConfigError(f"{traffic}: {error}: mend the file", exit_code=EX_DATAERR) from None
    if write is not None:
        for edge in edges:
            _write(write / f"rules-{edge.id}.toml", rules(edge))
            _write(write / f"upstreams-{edge.id}.toml", upstreams(edge))
    if as_json:
        told = {
            str(e.id): {"owns": e.owns, "keep": e.keep, "up": e.up, "down": e.down} for e in edges
        }
        click.echo(json.dumps(told))
        return
    rows = [("broker", "owns", "keeps", "to the hub /s", "from the hub /s")]
    rows += [
        (str(e.id), str(len(e.owns)), str(len(e.keep)), f"{e.up:g}", f"{e.down:g}") for e in edges
    ]
    click.echo("\n".join(columns(rows)))
    for edge in edges if write is None else ():
        click.echo(f"\n# agent of broker {edge.id}\n{rules(edge)}", nl=False)


def rules(edge: Edge) -> str:
    """The section for the configuration of ``edge``'s agent."""
    return f"[rules]\nkeep = {_listed(edge, edge.keep, 'keep', CONFIGURED_FILTERS_MAX)}\n"


def upstreams(edge: Edge) -> str:
    """The section for the configuration of a gateway before ``edge`` and the hub."""
    if not edge.owns:
        return ""
    filters = _listed(edge, edge.owns, "own", UPSTREAM_FILTERS_MAX)
    return f"[[upstreams]]\nbroker = {edge.id}\nfilters = {filters}\n"


def _listed(edge: Edge, topics: Sequence[str], verb: str, most: int) -> str:
    """A list in TOML. Raises ``ConfigError``: more topics than a configuration may name."""
    if len(topics) > most:
        text = f"broker {edge.id}: {len(topics)} topics to {verb}, at most {most}"
        raise ConfigError(f"{text}: name them by wildcards by hand", exit_code=EX_DATAERR)
    lines = "".join(f"    {json.dumps(topic, ensure_ascii=False)},\n" for topic in topics)
    return f"[\n{lines}]"


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        what = f"{path.parent}: {error.strerror}: name a folder this user may write"
        raise ConfigError(what, exit_code=EX_CANTCREAT) from None

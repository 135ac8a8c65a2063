"""``federator explain TOPIC``: which filters match, which way it goes, and why not."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from federator.cli.agent_pages import agent_url, get, url_option
from federator.cli.options import config_option
from federator.cli.status import shown


@click.command(name="explain")
@click.argument("topic")
@config_option
@url_option
@click.option("--json", "as_json", is_flag=True, help="The agent's answer as it is.")
def command(topic: str, config: Path | None, url: str | None, as_json: bool) -> None:
    """Say where a publication on TOPIC goes from this broker, and why."""
    answer = get(agent_url(config, url), "/explain", topic=topic)
    click.echo(json.dumps(answer, indent=2) if as_json else "\n".join(as_text(answer)))


def as_text(answer: Mapping[str, Any]) -> list[str]:
    """The answer first, then each matching filter with its route, and each group."""
    hops = answer.get("next_hops", [])
    where = f"to {shown(hops)}" if hops else "nowhere"
    lines = [f"{shown(answer.get('topic'))}: {where}: {answer.get('why', '')}"]
    for match in answer.get("filters", []):
        lines.append(f"  {shown(match.get('filter'))}: {match.get('why', '')}")
        rest = {k: v for k, v in match.items() if k not in ("filter", "why", "key")}
        told = [f"{key} {shown(value)}" for key, value in rest.items() if value not in (None, [])]
        lines.append("    " + ", ".join(told))
    if not answer.get("filters"):
        lines.append("  no filter matches")
    for group in answer.get("groups", []):
        members = [f"{n} on broker {broker}" for broker, n in group.get("members", {}).items()]
        lines.append(
            f"  $share/{shown(group.get('group'))}/{shown(group.get('filter'))}: "
            + (
                f"to one member of {', '.join(members)}"
                if members
                else "kept: members out of reach"
            )
        )
    return lines

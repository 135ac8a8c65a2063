"""``federator explain TOPIC``: which filters match, the route, and why there is none."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from federator.cli.agent_pages import Names, agent_url, get, url_option
from federator.cli.observe.status import shown
from federator.cli.options import answer_option, config_option, print_result


@click.command(name="explain")
@click.argument("topic")
@config_option
@url_option
@answer_option
def command(topic: str, config: Path | None, url: str | None, as_json: bool) -> None:
    """Say where a publication on TOPIC goes from this broker, and why."""
    answer = get(agent_url(config, url), "/explain", topic=topic)
    print_result(answer, as_text(answer), as_json=as_json)


def as_text(answer: Mapping[str, Any]) -> list[str]:
    """The answer first, then each matching filter with its route, and each group."""
    names = Names(answer.get("names"))
    answer = names.beside(answer)
    hops = answer.get("next_hops", [])
    where = f"to {shown(hops)}" if hops else "nowhere"
    lines = [f"{shown(answer.get('topic'))}: {where}: {answer.get('why', '')}"]
    for match in answer.get("filters", []):
        lines.append(f"  {shown(match.get('filter'))}: {match.get('why', '')}")
        rest = {k: v for k, v in match.items() if k not in ("filter", "why", "key", "ways")}
        details = [
            f"{key} {shown(value)}" for key, value in rest.items() if value not in (None, [])
        ]
        lines.append("    " + ", ".join(details))
        lines += [_way(way) for way in match.get("ways", [])]
    if not answer.get("filters"):
        lines.append("  no filter matches")
    for group in answer.get("groups", []):
        members = [f"{n} on broker {names.shown(id)}" for id, n in group.get("members", {}).items()]
        one = f"to one member of {', '.join(members)}"
        where = one if members else "kept: members out of reach"
        lines.append(f"  $share/{shown(group.get('group'))}/{shown(group.get('filter'))}: {where}")
    return lines


def _way(way: Mapping[str, Any]) -> str:
    """One row of the routing table."""
    if way.get("path/topic") is None:
        return f"    {shown(way.get('to'))} is out of reach"
    line = f"    {shown(way.get('strategy'))} to {shown(way.get('to'))}: "
    line += f"path/topic {shown(way['path/topic'])}, weight {shown(way.get('weight'))}"
    if way.get("backup") is not None:
        line += f", backup {shown(way['backup'])} (weight {shown(way.get('backup_weight'))})"
    return line

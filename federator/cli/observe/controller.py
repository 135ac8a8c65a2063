"""``federator controller status``: the session flow table, equivalences, and substitutes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from federator.cli.agent_pages import Names, agent_url, get, url_option
from federator.cli.observe.status import table
from federator.cli.options import answer_option, config_option, print_result

ROWS_SHOWN = 40


@click.group(name="controller")
def command() -> None:
    """Ask about failover."""


@command.command(name="status")
@config_option
@url_option
@answer_option
@click.option("--all", "every_row", is_flag=True, help="Every row of the session flow table.")
def status(config: Path | None, url: str | None, as_json: bool, every_row: bool) -> int:
    """Show the controller, the brokers, their substitutes with reasons, and the table.

    Any agent can be asked. Exits 1 when failover is disabled there.
    """
    page = get(agent_url(config, url), "/controller")
    print_result(page, as_text(page, every_row=every_row), as_json=as_json)
    return 0 if page.get("enabled") else 1


def as_text(page: Mapping[str, Any], *, every_row: bool = False) -> list[str]:
    """The page for people."""
    if not page.get("enabled"):
        return ["failover.enabled = false on this agent"]
    page = Names(page.get("names")).beside(page)
    mine = " (this agent)" if page.get("is_controller") else ""
    lines = [
        f"controller: broker {page.get('controller')}{mine}, term {page.get('term')}, "
        f"word {page.get('number')}",
        "",
        "brokers:",
    ]
    brokers = page.get("brokers", [])
    lines += table([{k: v for k, v in b.items() if k != "why"} for b in brokers])
    lines += ["", "who would replace whom, best first:"]
    for broker in brokers:
        reasons = broker.get("why", [])
        lines.append(f"  {broker.get('broker')}: {'nobody' if not reasons else ''}".rstrip())
        lines += [f"    by {reason}" for reason in reasons]
    lines += ["", "in force:", *table(page.get("takeovers", []))]
    lines += ["", "equivalent brokers:", *table(page.get("equivalences", []))]
    rows, total = page.get("table", []), page.get("table_total", 0)
    shown = rows if every_row else rows[:ROWS_SHOWN]
    more = f", the first {len(shown)}" if len(shown) < total else ""
    return [*lines, "", f"session flow table: {total}{more}", *table(shown)]

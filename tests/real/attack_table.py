"""``python -m tests.real.attack_table FILE``: what honest traffic felt beside each attack.

FILE is what ``tests.real.undisturbed`` wrote. Exit 1 where a bar of docs/security.md is missed, or
one that a row brings along: how soon traffic goes another way, and how evenly groups share.
"""

import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

BARS = {"lost": 0, "twice": 0, "links_down": 0, "p99_ms": 250, "turn_ms": 50}
"""At most, beside any attack; a row may bring others."""

COLUMNS = ("row", "sent", *list(BARS)[:3], "p50_ms", "p99_ms", "slowest_ms", "turn_ms", "share")


def main(path):
    """Print the table of the figures in ``path``; returns whether one was missed or none tried."""
    table = Table(*COLUMNS, "where the longest turn was")
    missed = 0
    figures = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    for each in sorted(figures, key=lambda each: each["row"]):
        bars = BARS | each.get("bars", {})
        over = {name for name, bar in bars.items() if each.get(name, 0) > bar}
        missed += len(over)
        texts = {name: as_text(each[name]) for name in COLUMNS if name in each}
        texts |= {name: f"[red]{texts[name]}[/red]" for name in over}
        cells = [texts.get(name, "") for name in COLUMNS]
        where = " > ".join(each.get("where", "").split(" > ")[-3:]) if "turn_ms" in over else ""
        table.add_row(*cells, where)
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    Console().print(f"{missed} bars of {len(BARS) * len(figures)} missed")
    return missed or not figures


def as_text(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1])))

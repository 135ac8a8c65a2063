"""``federator-lab grid --auto N``: brokers that join through one, and mend when it dies."""

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import click

from federator.cli.options import columns
from federator.protocol.topology.graph import Strength
from federator.protocol.types import BrokerId
from lab.cli.common import until_stopped, write_atomically
from lab.grid.joined import JoinedGrid

SEED = BrokerId(0)


def run_auto(count: int, folder: Path, *, stay: bool, state: Path | None, as_json: bool) -> int:
    """Start, wait until the graph is as promised, kill the seed, wait again; or stay.

    Raises:
        LinkError: It did not become so in time.
    """
    work = _carry_out(count, folder, stay=stay, state=state, as_json=as_json)
    ended = asyncio.run(until_stopped(work, name="grid"))
    if isinstance(ended, signal.Signals):
        return 0 if stay and ended is signal.SIGINT else 128 + ended
    return 0


async def _carry_out(
    count: int, folder: Path, *, stay: bool, state: Path | None, as_json: bool
) -> None:
    started_s = time.monotonic()
    async with JoinedGrid(count, folder) as grid:
        told = {"joined": _told(await grid.settled(), time.monotonic() - started_s)}
        if state is not None:
            write_atomically(state, json.dumps(grid.state(), indent=1) + "\n")
        if stay:
            click.echo("\n".join(_lines(f"{count} brokers joined by one", told["joined"])))
            click.echo("\n".join(_invitation(grid)))
            await asyncio.Event().wait()
        killed_s = time.monotonic()
        grid.kill(SEED)
        told["mended"] = _told(await grid.settled(), time.monotonic() - killed_s)
    if as_json:
        click.echo(json.dumps(told))
        return
    click.echo("\n".join(_lines(f"{count} brokers joined by one", told["joined"])))
    click.echo("\n".join(["", *_lines("the seed was killed, and the rest mended", told["mended"])]))


def _told(strength: Strength, took_s: float) -> dict[str, Any]:
    counts = ("brokers", "links", "degree_min", "degree_max", "diameter", "survives_any_death")
    return {"took_s": round(took_s, 1), **{name: getattr(strength, name) for name in counts}}


def _lines(title: str, told: dict[str, Any]) -> list[str]:
    rows = [(name.replace("_", " "), str(value)) for name, value in told.items()]
    return [f"{title}:", *columns(rows, indent=2)]


def _invitation(grid: JoinedGrid) -> list[str]:
    first = next(iter(grid.agents.values()))
    places = [
        f"  broker {id:<3} port {broker.port}  agent {grid.agents[id].http}"
        for id, broker in grid.brokers.items()
    ]
    asked = f"  federator topology --url {first.http} --what-if remove=5"
    return ["", *places, "", "What would break, for example:", asked, "", "Ctrl-C ends them all."]

"""``federator-lab ways``: what a link carries in WebSockets, as a part of what it does by TCP."""

from functools import partial
from pathlib import Path

import click

from federator.cli.options import FOLDER, json_option, option
from lab.cli.common import in_folder, judged
from lab.ways.run import PLAIN, Outcome, run


@click.command(name="ways")
@option("--burst", type=click.IntRange(1, 1_000_000), default=20_000, help="Publications, QoS 1.")
@option("--rounds", type=click.IntRange(1, 100), default=3, help="Bursts of each way.")
@option("--seconds", type=click.FloatRange(1, 86_400), default=20.0, help="Of steady streams.")
@option("--rate", "rate_hz", type=click.FloatRange(1, 2_000), default=100.0, help="msg/s, QoS 1.")
@click.option("--keep", type=FOLDER, help="Keep configurations and logs in this folder.")
@json_option
def command(
    burst: int, rounds: int, seconds: float, rate_hz: float, keep: Path | None, as_json: bool
) -> int:
    """Run links by TCP, in WebSockets, and in WebSockets that one end dials, beside each other.

    Exits 0 when every publication arrived once and in order; 1 otherwise.
    """
    progress = partial(click.echo, err=as_json)
    work = partial(
        run, burst=burst, rounds=rounds, seconds=seconds, rate_hz=rate_hz, progress=progress
    )
    ended = in_folder(work, keep, verb="ways")
    ways = {name: {"to_hub": to, "from_hub": back} for name, (to, back) in ended.items()}
    return judged(table(ended), {"ways": ways}, held=exact(ended), as_json=as_json)


def exact(outcome: Outcome) -> bool:
    """Whether each publication of the steady streams arrived once and in order."""
    return all(each.arrivals.exact for both in outcome.values() for each in both)


def table(outcome: Outcome) -> list[str]:
    """What each way carried, for people and for a page."""
    lines = ["| link | to the hub, msg/s | from it | median delay, ms, to it | from it |"]
    lines += ["| -- | -- | -- | -- | -- |"]
    for name, both in outcome.items():
        rates = [
            f"{each.rate_hz:,.0f} ({each.rate_hz / plain.rate_hz:.2f})"
            for each, plain in zip(both, outcome[PLAIN], strict=True)
        ]
        delays = [f"{each.arrivals.delay_ms_p50:.1f}" for each in both]
        lines.append(f"| {' | '.join([name, *rates, *delays])} |")
    return lines

"""``federator-lab nat``: a site behind NAT loses nothing, and its link is as good as others."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from federator.cli.options import FOLDER, json_option, option
from lab.cli.common import fields_of, in_folder, judged
from lab.nat.run import WAYS, Outcome, run

THROUGHPUT_MIN = 0.9
DELAY_MAX = 1.2


@click.command(name="nat")
@option("--seconds", type=click.FloatRange(1, 86_400), default=600.0, help="Of steady streams.")
@option("--rate", "rate_hz", type=click.FloatRange(1, 2_000), default=300.0, help="msg/s, QoS 1.")
@option(
    "--move-every",
    "move_every_s",
    type=click.FloatRange(0, 86_400),
    default=60.0,
    help="Seconds between two changes of the router's address; 0: none.",
)
@option("--burst", type=click.IntRange(0, 1_000_000), default=20_000, help="Publications; 0: none.")
@option("--rounds", type=click.IntRange(1, 100), default=3, help="Bursts of each way.")
@click.option("--keep", type=FOLDER, help="Keep configurations and logs in this folder.")
@json_option
def command(
    seconds: float,
    rate_hz: float,
    move_every_s: float,
    burst: int,
    rounds: int,
    keep: Path | None,
    as_json: bool,
) -> int:
    """Run a site that only dials, behind NAT whose address changes, beside one that is dialled.

    Needs root, iptables and conntrack: it makes network namespaces.

    Exits 0 when every publication arrived once and in order, and the site's link has 0.9 of the
    other's throughput and at most 1.2 times its median delay; 1 otherwise.
    """
    work = partial(
        run,
        seconds=seconds,
        rate_hz=rate_hz,
        move_every_s=move_every_s,
        burst=burst,
        rounds=rounds,
        progress=partial(click.echo, err=as_json),
    )
    ended = in_folder(work, keep, verb="nat")
    lines, held = told(ended)
    found = {**fields_of(ended), "beside_two_way": beside(ended)}
    return judged(lines, found, held=held, as_json=as_json)


@dataclass(frozen=True, slots=True)
class Beside:
    """The site's link in one direction, as a part of the two-way link's."""

    direction: str
    median_delay: float
    throughput: float | None  # without bursts none

    @property
    def held(self) -> bool:
        """Whether it is as good as it should be."""
        fast = self.throughput is None or self.throughput >= THROUGHPUT_MIN
        return fast and self.median_delay <= DELAY_MAX


def beside(outcome: Outcome) -> list[Beside]:
    """The site's link beside the other one, to the hub and from it."""
    return [
        Beside(
            direction,
            outcome.median_delay(out=out),
            outcome.throughput(out=out) if outcome.rates_hz else None,
        )
        for out, direction in ((True, "to the hub"), (False, "from the hub"))
    ]


def told(outcome: Outcome) -> tuple[list[str], bool]:
    """What came of it, for people, and whether it is as it should be."""
    beside_two_way = beside(outcome)
    lines = [f"the router's address changed {outcome.moves} times"]
    for way in WAYS:
        got = outcome.arrivals[way]
        lines.append(
            f"{way[0]:>4} to {way[1]:<4}  {got.sent:,} sent: {got}; ms: "
            f"{got.delay_ms_p50:.2f} median, {got.delay_ms_p99:.1f} p99, {got.delay_ms_max:.0f} max"
        )
    for each in beside_two_way:
        text = f"{each.direction}: median delay {each.median_delay:.2f} of the two-way link's"
        if each.throughput is not None:
            text += f", throughput {each.throughput:.2f}"
        lines.append(text)
    held = outcome.exact and all(each.held for each in beside_two_way)
    return [*lines, "held" if held else "NOT held"], held

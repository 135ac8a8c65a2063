"""``federator-lab nat``: a site behind NAT loses nothing, and its link is as good as others."""

import signal
from pathlib import Path

import click

from federator.cli.options import FOLDER, option
from lab.cli.common import in_folder
from lab.nat.run import WAYS, Outcome, Plan, run

FAILED = 1
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
def command(
    seconds: float,
    rate_hz: float,
    move_every_s: float,
    burst: int,
    rounds: int,
    keep: Path | None,
) -> int:
    """Run a site that only dials, behind NAT whose address changes, beside one that is dialled.

    Needs root, iptables and conntrack: it makes network namespaces.

    Exits 0 when every publication arrived once and in order, and the site's link has 0.9 of the
    other's throughput and at most 1.2 times its median delay; 1 otherwise.
    """
    plan = Plan(seconds, rate_hz, move_every_s, burst, rounds)
    ended = in_folder(lambda folder: run(plan, folder, click.echo), keep, verb="nat")
    if isinstance(ended, signal.Signals):
        return 128 + ended
    lines, held = told(ended)
    click.echo("\n".join(lines))
    return 0 if held else FAILED


def told(outcome: Outcome) -> tuple[list[str], bool]:
    """What came of it, for people, and whether it is as it should be."""
    held = outcome.exact
    lines = [f"the router's address changed {outcome.moves} times"]
    for way in WAYS:
        got = outcome.arrivals[way]
        lines.append(
            f"{way[0]:>4} to {way[1]:<4}  {got.sent:,} sent: {got}; ms: "
            f"{got.delay_ms_p50:.2f} median, {got.delay_ms_p99:.1f} p99, {got.delay_ms_max:.0f} max"
        )
    for out, what in ((True, "to the hub"), (False, "from the hub")):
        delay = outcome.median_delay(out=out)
        held &= delay <= DELAY_MAX
        text = f"{what}: median delay {delay:.2f} of the two-way link's"
        if outcome.rates:
            throughput = outcome.throughput(out=out)
            held &= throughput >= THROUGHPUT_MIN
            text += f", throughput {throughput:.2f}"
        lines.append(text)
    return [*lines, "held" if held else "NOT held"], held

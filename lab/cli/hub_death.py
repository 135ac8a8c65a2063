"""``federator-lab hub-death``: leaves with a hub in reserve lose nothing when a hub dies."""

from functools import partial
from pathlib import Path

import click

from federator.cli.options import FOLDER, json_option, option
from lab.cli.common import fields_of, in_folder, judged
from lab.leaves.hub_death import Outcome, run

GAP_S_MAX = 1.0
FIRST_MS_MAX = 50.0


@click.command(name="hub-death")
@option("--rate", "rate_hz", type=click.FloatRange(1, 2_000), default=300.0, help="msg/s, QoS 1.")
@option(
    "--away", "away_s", type=click.FloatRange(1, 600), default=15.0, help="Seconds without the hub."
)
@option(
    "--cut",
    "cut_s",
    type=click.FloatRange(0, 3_600),
    default=60.0,
    help="Seconds for which a leaf is cut off from both its hubs; 0: it is not.",
)
@option("--fresh", type=click.IntRange(0, 1_000), default=20, help="Subscriptions that are timed.")
@click.option("--keep", type=FOLDER, help="Keep configurations and logs in this folder.")
@json_option
def command(
    rate_hz: float, away_s: float, cut_s: float, fresh: int, keep: Path | None, as_json: bool
) -> int:
    """Run 3 hubs and 12 leaves, kill a hub under load, and cut a leaf off from both its hubs.

    Exits 0 when every publication arrived once and in order, no stream was silent for a second when
    the hub died, and a subscription counts within 50 ms; 1 otherwise.
    """
    progress = partial(click.echo, err=as_json)
    work = partial(run, rate_hz=rate_hz, away_s=away_s, cut_s=cut_s, fresh=fresh, progress=progress)
    ended = in_folder(work, keep, verb="hub-death")
    lines, held = told(ended)
    return judged(lines, fields_of(ended), held=held, as_json=as_json)


def told(outcome: Outcome) -> tuple[list[str], bool]:
    """What came of it, for people, and whether it is as it should be."""
    lines = [
        f"leaf {source} to {target}: {each.sent} sent, {each}"
        for (source, target), each in outcome.arrivals.items()
    ]
    soon, quick = outcome.gap_s < GAP_S_MAX, outcome.first_ms < FIRST_MS_MAX
    lines.append(
        f"longest silence {outcome.gap_s:.2f} s, first publication {outcome.first_ms:.1f} ms"
    )
    held = outcome.exact and soon and quick
    return [*lines, "held" if held else "NOT held"], held

"""``federator-lab on-path``: a machine between agents that drops, delays, repeats and makes up."""

from functools import partial
from pathlib import Path

import click

from federator.cli.options import FOLDER, json_option, option
from lab.cli.common import fields_of, in_folder, judged
from lab.on_path.moods import Mood
from lab.on_path.run import SILENCE_S_MAX, Outcome, run


@click.command(name="on-path")
@option("--minutes", type=click.FloatRange(0.1, 1_440), default=10.0, help="Of harm.")
@option("--rate", "rate_hz", type=click.FloatRange(1, 2_000), default=50.0, help="msg/s, QoS 1.")
@option("--seed", type=int, default=1, help="Of what is done, and when.")
@click.option("--keep", type=FOLDER, help="Keep configurations and logs in this folder.")
@json_option
def command(minutes: float, rate_hz: float, seed: int, keep: Path | None, as_json: bool) -> int:
    """Put a machine on the path of direct links and of datagrams that does all it can.

    It drops, delays, repeats, changes, swaps and makes up packets and confirmations; the brokers
    are reached without harm.

    Exits 0 when every publication arrived and each connection that was swallowed was given up
    within 2 s; 1 otherwise.
    """
    progress = partial(click.echo, err=as_json)
    work = partial(run, minutes=minutes, rate_hz=rate_hz, seed=seed, progress=progress)
    ended = in_folder(work, keep, verb="on-path")
    held = ended.lost == 0 and max(ended.given_up_s, default=0.0) <= SILENCE_S_MAX
    return judged(lines(ended), fields_of(ended), held=held, as_json=as_json)


def lines(outcome: Outcome) -> list[str]:
    """What was done, and what came of it, for people."""
    made = ["| what is done | direct links | datagrams |", "| -- | -- | -- |"]
    harm = outcome.harm
    made += [
        f"| {mood} | {harm['direct'][mood]:,} | {harm['udp-fec'][mood]:,} |"
        for mood in Mood
        if mood is not Mood.HONEST
    ]
    made.append("")
    for topic, each in outcome.arrivals.items():
        worst = f"p99 {each.delay_ms_p99:.0f} ms, worst {each.delay_ms_max:.0f} ms"
        made.append(f"{topic}: {each.sent:,} sent, {each}, {worst}")
    longest = max(outcome.given_up_s, default=0.0)
    count = len(outcome.given_up_s)
    made.append(f"{count} connections were swallowed; the last to be left stood {longest:.2f} s")
    return made

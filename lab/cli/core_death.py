"""``federator-lab core-death``: a mesh's core dies or moves, and nobody else feels it."""

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

import click

from federator.cli.options import FOLDER, json_option, option
from lab.cli.common import in_folder, judged
from lab.grid.core_death import PLACES, Blow, Round, run

GAP_S_MAX = 0.1


@click.command(name="core-death")
@option(
    "--rounds", type=click.IntRange(1, 1_000), default=20, help="Blows of each kind at each place."
)
@option(
    "--blow",
    "blows",
    type=click.Choice([blow.value for blow in Blow]),
    multiple=True,
    help="What happens to the core; all of them when none is named.",
)
@option(
    "--place",
    "places",
    type=click.Choice([place.name for place in PLACES]),
    multiple=True,
    help="Where the core is, and who publishes and subscribes; all of them when none is named.",
)
@option("--rate", "rate_hz", type=click.FloatRange(1, 500), default=50.0, help="msg/s at each QoS.")
@option("--delay", "delay_ms", type=click.FloatRange(0, 100), default=1.0, help="ms of each link.")
@option("--redundancy", type=click.IntRange(1, 4), default=2, help="Parents per broker.")
@click.option("--keep", type=FOLDER, help="Keep configurations and logs in this folder.")
@json_option
def command(
    rounds: int,
    blows: tuple[str, ...],
    places: tuple[str, ...],
    rate_hz: float,
    delay_ms: float,
    redundancy: int,
    keep: Path | None,
    as_json: bool,
) -> int:
    """Run a 3 x 3 grid, and kill the core's broker or agent, or move the core, under traffic.

    Exits 0 when no subscriber heard nothing for more than 0.1 s, nothing came twice, and at QoS 1
    nothing was lost or out of order; 1 otherwise. A round takes about ten seconds.
    """
    chosen = [Blow(blow) for blow in blows] or list(Blow)

    ended = in_folder(
        lambda folder: run(
            chosen,
            folder,
            places=[place for place in PLACES if not places or place.name in places],
            rounds=rounds,
            rate_hz=rate_hz,
            delay_ms=delay_ms,
            redundancy=redundancy,
            progress=partial(click.echo, err=as_json),
        ),
        keep,
        verb="core-death",
    )
    lines, held = told(ended)
    return judged(lines, {"rounds": ended}, held=held, as_json=as_json)


def told(rounds: Sequence[Round]) -> tuple[list[str], bool]:
    """What was felt, for people, and whether it is as it should be."""

    def kind(each: Round) -> tuple[str, str, int]:
        return each.place.name, each.blow, each.qos

    lines = []
    for (place, blow, qos), some in groupby(sorted(rounds, key=kind), key=kind):
        felt = list(some)
        lines.append(
            f"{place}, {blow}, QoS {qos}: longest silence {max(each.gap_s for each in felt):.3f} s,"
            f" {sum(each.arrivals.lost for each in felt)} lost of"
            f" {sum(each.arrivals.sent for each in felt)},"
            f" {sum(each.twice for each in felt)} twice,"
            f" {sum(each.arrivals.disordered for each in felt)} out of order"
        )
    held = all(each.gap_s <= GAP_S_MAX and not each.broken for each in rounds)
    return [*lines, "held" if held else "NOT held"], held

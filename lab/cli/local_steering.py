"""``federator-lab local-steering``: prices without a centre beside the central steerer.

The same seeded demands, on the product's own nodes in the simulator, under each of both.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import isfinite
from statistics import median

import click

from federator.cli.options import columns, json_option, option
from lab.cli.common import Bars, fields_of, tell
from lab.local_steering.faulty import run_mixture
from lab.local_steering.trial import Large, Outcome, exact_cost, large, try_out

MISSED = 1
BROKERS = range(8, 13)
STEERERS = ("local", "central")
FIRST = 1
BARS = {
    "fullest": 0.952,
    "fullest_noisy": 0.952,
    "over_exact": 0.05,
    "most_moves": 1,
    "shift_95_s": 30.0,
    "burst_moves": 0,
    "control_share": 0.01,
}
HEADINGS = (
    "seed", "brokers", "steered", "fullest", "over exact", "moves", "a flow's", "late", "noisy",
    "control", "shift", "to 95%", "burst",
)  # fmt: skip


@click.command(name="local-steering")
@option("--seeds", type=click.IntRange(0, 1_000), default=10, help="Demands at 8 to 12 brokers.")
@option("--large", "brokers", type=click.IntRange(0, 200), default=60, help="Brokers of one more.")
@option("--mixtures", type=click.IntRange(0), default=100, help="Faulty federations of 8 brokers.")
@option("--processes", type=click.IntRange(1, 16), default=2)
@json_option
def command(seeds: int, brokers: int, mixtures: int, processes: int, as_json: bool) -> int:
    """Compare links priced by their ends and flows moved by their origins with the central steerer.

    Simulated loads on the product's own nodes. Columns: the fullest link after a minute; the cost
    of all paths over that of `plan solve --method exact`; moves until then. Under noise of 20 % for
    ten minutes: the most moves of one flow within five minutes, and of all, after the first minute;
    the fullest link in the end; bytes of steering over those of data. Seconds until a lasting shift
    leaves no link over its capacity, and none over 95 %; moves by five bursts of two seconds.

    Mixtures are federations under faults whose agents steer so by loads drawn by chance, while some
    of them follow no tree.

    Exits 0 when both keep all bars, 1 otherwise.
    """
    wanted = [(seed, BROKERS[seed % len(BROKERS)]) for seed in range(FIRST, FIRST + seeds)]
    with ProcessPoolExecutor(processes) as pool, Bars() as bars:
        track = bars.progress.track
        trials = [
            (seed, size, outcome)
            for seed, size, outcomes in track(pool.map(_compare, wanted), total=seeds)
            for outcome in outcomes
        ]
        stories = list(track(pool.map(run_mixture, range(mixtures), chunksize=4), total=mixtures))
        many = list(pool.map(_large, [(brokers, each) for each in STEERERS])) if brokers else []
    missed = list(misses([each for _, _, each in trials]))
    violations = [(each.seed, each.violation) for each in stories if each.violation is not None]
    fired = sum((Counter(each.fired) for each in stories), Counter[str]())
    rows = [(str(seed), str(size), *_row(each)) for seed, size, each in trials]
    lines = [
        *(columns([HEADINGS, *rows]) if rows else []),
        *_medians([each for _, _, each in trials]),
        *missed,
        *(each.text for each in many),
        f"mixtures: {mixtures} seeds, {fired['local move']} moves, {fired['planned frame']} frames "
        f"by trees, {fired['tree torn']} times torn, {len(violations)} violations",
        *(f"  seed {seed}: {each.invariant}: {each.detail}" for seed, each in violations[:3]),
    ]
    held = not missed and not violations
    found = {
        "held": held,
        "trials": [
            {"seed": seed, "brokers": size, **fields_of(each)} for seed, size, each in trials
        ],
        "missed": missed,
        "large": many,
        "mixtures": mixtures,
        "fired": fired,
        "violations": [{"seed": seed, **fields_of(each)} for seed, each in violations],
    }
    tell(lines, found, as_json=as_json)
    return 0 if held else MISSED


def _compare(about: tuple[int, int]) -> tuple[int, int, list[Outcome]]:
    seed, brokers = about
    cost = exact_cost(seed, brokers, time.monotonic)
    return seed, brokers, [try_out(seed, brokers, steerer, cost) for steerer in STEERERS]


def _large(about: tuple[int, str]) -> Large:
    return large(*about, seed=FIRST)


def _row(each: Outcome) -> Sequence[str]:
    return (
        each.steerer, f"{each.fullest:.0%}", f"{each.over_exact:.1%}", str(each.moves),
        str(each.most_moves), str(each.late_moves), f"{each.fullest_noisy:.0%}",
        f"{each.control_share:.2%}", f"{each.shift_s:.0f} s", f"{each.shift_95_s:.0f} s",
        str(each.burst_moves),
    )  # fmt: skip


def _medians(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for steerer in STEERERS:
        if ours := [each for each in outcomes if each.steerer == steerer]:
            over = [each.over_exact for each in ours]
            shifts = [each.shift_95_s for each in ours]
            followed = max((each for each in shifts if isfinite(each)), default=0.0)
            yield (
                f"{steerer}: over exact {median(over):.1%} in the middle, {max(over):.1%} at most; "
                f"shifts followed in {median(shifts):.0f} s in the middle, "
                f"{followed:.0f} s at most, {sum(not isfinite(s) for s in shifts)} not at all"
            )


def misses(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The bars that are missed, and how often."""
    for steerer in STEERERS:
        ours = [each for each in outcomes if each.steerer == steerer]
        for what, most in BARS.items():
            if count := sum(getattr(each, what) > most for each in ours):
                yield f"{steerer} misses {what} <= {most:g} at {count} of {len(ours)} demands"

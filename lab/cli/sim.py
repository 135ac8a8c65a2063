"""``federator-lab sim``: the protocol in a simulated world, one story per seed.

Prints the first seed before anything else, so that a crash can be replayed too. A failing story is
made as short as it gets, and written to a file that ``--replay`` tells again.
Exit codes: 0 when every invariant held and every seed converged, 1 otherwise.
"""

import gc
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from federator.cli.options import columns, option
from federator.errors import DecodeError
from federator.protocol.parameters import Strategy
from lab.frame.printing import Bars
from lab.sim import topologies
from lab.sim.campaign import draw, run
from lab.sim.manner import MOVES, Manner
from lab.sim.plan import STRATEGIES
from lab.sim.routes.draw import NODES
from lab.sim.shrink import shrink
from lab.sim.story import Kind, Story, decode, encode, lines_of
from lab.sim.tale import SeedResult

VIOLATED = 1
NODES_MAX = 1_000
NIGHTLY_SEEDS = 10_000
VIOLATIONS_SHOWN_MAX = 3
LAST_EVENT_CHARS_MAX = 160

_KINDS = (Kind.MESSAGES, Kind.FAILOVER, Kind.JOINING, Kind.ATTACK)


def _run(seed: int, kind: Kind, manner: dict[str, Any]) -> SeedResult:
    """One seed, in a worker. Its garbage is collected once, at its end."""
    gc.disable()
    try:
        return run(draw(kind, seed, **manner))
    finally:
        gc.enable()
        gc.collect()


@click.command(name="sim")
@click.option(
    "--nodes",
    type=click.IntRange(2, NODES_MAX),
    help="[25; with --messages and --attack 2 to 9, --failover 2 to 12, --joining 3 to 40]",
)
@option("--seeds", type=click.IntRange(1), default=200, help="How many.")
@click.option("--nightly", is_flag=True, help=f"{NIGHTLY_SEEDS} seeds.")
@click.option("--seed", "first", type=click.IntRange(0), default=0, help="The first. [0]")
@option(
    "--topology", type=click.Choice([topologies.ANY, *topologies.NAMES]), default=topologies.ANY
)
@click.option(
    "--messages", is_flag=True, help="With clients and custody: who must get what, how often."
)
@click.option(
    "--failover",
    is_flag=True,
    help="Controllers, takeovers, splits and drains, and clients that are moved.",
)
@click.option(
    "--joining",
    is_flag=True,
    help="Brokers that join by one seed and arrange their links by themselves.",
)
@click.option(
    "--attack",
    is_flag=True,
    help="Signed, with clients, under attack by strangers or by a member that lies.",
)
@click.option(
    "--steered", is_flag=True, help="Steerers that know nothing plan trees; not with the others."
)
@click.option("--edges", is_flag=True, help="Their plans say as well what is kept at the edge.")
@option("--moves", type=click.IntRange(1), default=MOVES, help="Of each attack.")
@click.option(
    "--replay",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Tell the story in this file instead.",
)
@click.option("--faults/--no-faults", "faulty", default=True, help="Let things go wrong. [yes]")
@option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    default=Strategy.MESH.value,
    help="How publications are routed; mixed: each broker in its own way.",
)
@click.option("--by-delay", is_flag=True, help="Links cost their delay, which changes.")
@click.option("--outbound", is_flag=True, help="Many links that only one end can dial.")
@click.option("--hubs", is_flag=True, help="With --messages: one to three hubs, and leaves.")
@click.option("--areas", is_flag=True, help="With --messages: hubs of hubs, two to four meshes.")
@click.option("--workers", type=click.IntRange(1), help="Processes. [one per core]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per seed, and a summary.")
def command(
    seeds: int,
    nightly: bool,
    first: int,
    replay: Path | None,
    workers: int | None,
    as_json: bool,
    **options: Any,  # noqa: ANN401  # kinds, and fields of Manner by name
) -> None:
    """Run the protocol in a simulated world, checking every invariant after every event."""
    if replay is not None:
        _replay(replay)
        return
    kind = _kind_of(options)
    seeds = NIGHTLY_SEEDS if nightly else seeds
    if not as_json:
        click.echo(
            f"seed {first} and the {seeds - 1} after it, {_words_of(kind, Manner(**options))}"
        )
    sys.stdout.flush()
    results: list[SeedResult] = []
    tell = partial(_run, kind=kind, manner=options)
    for result in _results(range(first, first + seeds), tell, workers):
        if as_json:
            click.echo(json.dumps(asdict(result)))
        results.append(result)
    violated = [result for result in results if result.violation is not None]
    if as_json:
        click.echo(json.dumps(_summary(results)))
    else:
        _print_table(results)
        for result in violated[:VIOLATIONS_SHOWN_MAX]:
            _print_shortest(draw(kind, result.seed, **options), result)
        if len(violated) > VIOLATIONS_SHOWN_MAX:
            click.echo(f"{len(violated)} seeds violated something: {[r.seed for r in violated]}")
    if violated:
        sys.exit(VIOLATED)


def _kind_of(options: dict[str, Any]) -> Kind:
    """Take the kind out of ``options``. Raises ``click.UsageError``: they do not go together."""
    kinds = [kind for kind in _KINDS if options.pop(kind)]
    kind = kinds[0] if kinds else Kind.ROUTES
    plain = kind in (Kind.ROUTES, Kind.MESSAGES)
    for wrong, why in (
        (len(kinds) > 1, "--messages, --failover, --joining and --attack are stories of their own"),
        (options["steered"] and not plain, "--steered goes with --messages, or alone"),
        (options["edges"] and not options["steered"], "--edges goes with --steered"),
        (
            (options["by_delay"] or options["outbound"]) and not plain,
            "--by-delay and --outbound go with --messages, or alone",
        ),
        (
            (options["hubs"] or options["areas"]) and kind is not Kind.MESSAGES,
            "--hubs and --areas go with --messages",
        ),
    ):
        if wrong:
            raise click.UsageError(why)
    return kind


def _words_of(kind: Kind, manner: Manner) -> str:
    few = kind is not Kind.ROUTES and not manner.nodes
    words = ["few nodes" if few else f"{manner.nodes or NODES} nodes"]
    words += [manner.topology, manner.strategy]
    words += [kind] if kind is not Kind.ROUTES else []
    words += [f"{manner.moves} moves"] if kind is Kind.ATTACK else []
    flags = ("steered", "edges", "by_delay", "outbound", "hubs", "areas")
    words += [flag.replace("_", " ") for flag in flags if getattr(manner, flag)]
    return ", ".join(words)


def _results(
    seeds: Sequence[int], tell: Callable[[int], SeedResult], workers: int | None
) -> Iterator[SeedResult]:
    workers = min(workers or os.cpu_count() or 1, len(seeds))
    with Bars() as bars:
        track = partial(bars.progress.track, total=len(seeds), description="simulating")
        if workers == 1:
            yield from track(map(tell, seeds))
            return
        with ProcessPoolExecutor(workers, initializer=gc.freeze) as pool:
            yield from track(pool.map(tell, seeds, chunksize=2))


def _summary(results: Sequence[SeedResult]) -> dict[str, object]:
    converged = sorted(r.converged_ms for r in results if r.converged_ms is not None)
    fired = Counter(name for result in results for name in result.fired)
    return {
        "seeds": len(results),
        "violations": [
            {"seed": r.seed, "invariant": r.violation.invariant}
            for r in results
            if r.violation is not None
        ],
        "converged_ms_median": converged[len(converged) // 2] if converged else None,
        "converged_ms_max": converged[-1] if converged else None,
        "events": sum(result.calls for result in results),
        "fired_in_share_of_seeds": {
            name: round(count / len(results), 4) for name, count in sorted(fired.items())
        },
    }


def _print_table(results: Sequence[SeedResult]) -> None:
    summary = _summary(results)
    shares = summary["fired_in_share_of_seeds"]
    assert isinstance(shares, dict)
    violations = sum(result.violation is not None for result in results)
    rows = [
        ("seeds", summary["seeds"]),
        ("events", summary["events"]),
        ("violations", violations),
        ("converged, median ms", summary["converged_ms_median"]),
        ("converged, slowest ms", summary["converged_ms_max"]),
    ]
    click.echo("\n".join(columns(rows)))
    click.echo("share of seeds in which it happened:")
    click.echo("\n".join(columns([(n, f"{100 * s:.1f} %") for n, s in shares.items()], indent=2)))


def _print_shortest(story: Story, result: SeedResult) -> None:
    """The shortest story that fails as this one does, and where it is kept."""
    shortest = shrink(run, story, result)
    path = Path(tempfile.gettempdir()) / f"federator-sim-{result.seed}.json"
    path.write_bytes(encode(shortest.story))
    _print_what_happened(shortest.result)
    click.echo(f"  the shortest story found in {shortest.runs} runs:")
    _print_story(shortest.story)
    click.echo(f"  again: federator-lab sim --replay {path}")


def _replay(path: Path) -> None:
    try:
        story = decode(path.read_bytes())
    except DecodeError as error:
        raise click.ClickException(f"{path}: {error}") from error
    result = run(story)
    _print_story(story)
    if result.violation is None:
        click.echo("nothing was violated")
    else:
        _print_what_happened(result)
        sys.exit(VIOLATED)


def _print_story(story: Story) -> None:
    for line in lines_of(story):
        click.echo(f"    {line}")


def _print_what_happened(result: SeedResult) -> None:
    violation = result.violation
    assert violation is not None, "called for violations only"
    click.echo("")
    click.echo(f"seed {result.seed} ({result.topology}) at {violation.at_ms} ms")
    click.echo(f"  {violation.invariant}: {violation.detail}")
    for event in violation.last_events:
        click.echo(f"  {event[:LAST_EVENT_CHARS_MAX]}")

"""``federator-lab sim``: the protocol in a simulated world, one story per seed.

Prints the first seed before anything else, so that a crash can be replayed too. With ``--messages``
a failing story is made as short as it gets, and written to a file that ``--replay`` tells again.
Exit codes: 0 when every invariant held and every seed converged, 1 otherwise.
"""

import gc
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from federator.cli.options import columns, option
from federator.errors import DecodeError
from federator.protocol.parameters import Strategy
from lab.cli.common import Bars
from lab.sim import scenario, topologies
from lab.sim.attack import story as attack_story
from lab.sim.attack.campaign import run_attack
from lab.sim.campaign import SeedResult, run_scenario
from lab.sim.failover import story as failover_story
from lab.sim.failover.campaign import run_failover
from lab.sim.joining import story as joining_story
from lab.sim.joining.campaign import run_joining
from lab.sim.messages import story as stories
from lab.sim.messages.campaign import run_story
from lab.sim.plan import STRATEGIES
from lab.sim.shrink import shrink

VIOLATED = 1
NODES_MAX = 1_000
NODES = 25
NIGHTLY_SEEDS = 10_000
VIOLATIONS_SHOWN_MAX = 3
LAST_EVENT_CHARS_MAX = 160


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What all stories of a run have in common."""

    nodes: int | None
    topology: str
    faulty: bool
    strategy: str
    by_delay: bool
    outbound: bool
    messages: bool
    failover: bool
    joining: bool
    attack: bool
    moves: int
    steered: bool
    edges: bool
    hubs: bool
    areas: bool

    def draws(self) -> dict[str, Any]:
        """What most kinds of stories are drawn from, besides a seed."""
        names = ("nodes", "topology", "faulty", "strategy")
        return {name: getattr(self, name) for name in names}

    def also(self) -> dict[str, Any]:
        """What stories with and without clients are drawn from, besides."""
        return {
            "steered": self.steered,
            "edges": self.edges,
            "by_delay": self.by_delay,
            "outbound": self.outbound,
        }

    def options(self) -> str:
        """What draws the same again, besides nodes, topology and seed."""
        by_delay = " --by-delay" if self.by_delay else ""
        by_delay += " --outbound" if self.outbound else ""
        by_delay += " --hubs" if self.hubs else ""
        by_delay += " --areas" if self.areas else ""
        strategy = "" if self.strategy == Strategy.MESH else f" --strategy {self.strategy}"
        failover = " --failover" if self.failover else ""
        failover += " --joining" if self.joining else ""
        failover += " --steered" if self.steered else ""
        failover += " --edges" if self.edges else ""
        failover += f" --attack --moves {self.moves}" if self.attack else ""
        return failover + strategy + by_delay + ("" if self.faulty else " --no-faults")


def _story_of(seed: int, drawn: _Drawn) -> stories.MessageStory:
    """The story with clients of one seed."""
    if drawn.hubs or drawn.areas:
        return stories.draw_hubs(seed, faulty=drawn.faulty, areas=drawn.areas)
    return stories.draw(seed, **drawn.draws(), **drawn.also())


def _run(seed: int, drawn: _Drawn) -> SeedResult:
    """One seed, in a worker. Its garbage is collected once, at its end."""
    gc.disable()
    try:
        if drawn.messages:
            return run_story(_story_of(seed, drawn))
        if drawn.attack:
            return run_attack(attack_story.draw(seed, moves=drawn.moves, **drawn.draws()))
        if drawn.failover:
            return run_failover(failover_story.draw(seed, **drawn.draws()))
        if drawn.joining:
            return run_joining(joining_story.draw(seed, nodes=drawn.nodes, faulty=drawn.faulty))
        many = replace(drawn, nodes=drawn.nodes or NODES)
        return run_scenario(scenario.draw(seed, **many.draws(), **many.also()))
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
@option("--moves", type=click.IntRange(1), default=attack_story.MOVES, help="Of each attack.")
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
    **options: Any,  # noqa: ANN401  # fields of _Drawn by name
) -> None:
    """Run the protocol in a simulated world, checking every invariant after every event."""
    if replay is not None:
        _replay(replay)
        return
    drawn = _Drawn(**options)
    stories_wanted = drawn.messages + drawn.failover + drawn.joining + drawn.attack
    if drawn.steered and stories_wanted > drawn.messages:
        raise click.UsageError("--steered goes with --messages, or alone")
    if drawn.edges and not drawn.steered:
        raise click.UsageError("--edges goes with --steered")
    if stories_wanted > 1:
        kinds = "--messages, --failover, --joining and --attack"
        raise click.UsageError(f"{kinds} are stories of their own")
    if (drawn.by_delay or drawn.outbound) and stories_wanted > drawn.messages:
        raise click.UsageError("--by-delay and --outbound go with --messages, or alone")
    if (drawn.hubs or drawn.areas) and not drawn.messages:
        raise click.UsageError("--hubs and --areas go with --messages")
    seeds = NIGHTLY_SEEDS if nightly else seeds
    if not as_json:
        few = stories_wanted and not drawn.nodes
        size = "few nodes" if few else f"{drawn.nodes or NODES} nodes"
        what = ", with clients" if drawn.messages else ", failover" if drawn.failover else ""
        what = ", joining" if drawn.joining else what
        what = f", attacked in {drawn.moves} moves" if drawn.attack else what
        what += ", steered" if drawn.steered else ""
        what += ", with edges" if drawn.edges else ""
        what += ", links that cost their delay" if drawn.by_delay else ""
        what += ", many dialled by one end only" if drawn.outbound else ""
        what += ", hubs and leaves" if drawn.hubs else ", hubs of hubs" if drawn.areas else ""
        where = f"{size}, {drawn.topology}, {drawn.strategy}{what}"
        click.echo(f"seed {first} and the {seeds - 1} after it, {where}")
    sys.stdout.flush()
    results: list[SeedResult] = []
    for result in _results(range(first, first + seeds), drawn, workers):
        if as_json:
            click.echo(json.dumps(asdict(result)))
        results.append(result)
    violated = [result for result in results if result.violation is not None]
    if as_json:
        click.echo(json.dumps(_summary(results)))
    else:
        _print_table(results)
        for result in violated[:VIOLATIONS_SHOWN_MAX]:
            show = _print_shortest if drawn.messages else _print_violation
            show(result, drawn)
        if len(violated) > VIOLATIONS_SHOWN_MAX:
            click.echo(f"{len(violated)} seeds violated something: {[r.seed for r in violated]}")
    if violated:
        sys.exit(VIOLATED)


def _results(seeds: Sequence[int], drawn: _Drawn, workers: int | None) -> Iterator[SeedResult]:
    workers = min(workers or os.cpu_count() or 1, len(seeds))
    run = partial(_run, drawn=drawn)
    with Bars() as bars:
        track = partial(bars.progress.track, total=len(seeds), description="simulating")
        if workers == 1:
            yield from track(map(run, seeds))
            return
        with ProcessPoolExecutor(workers, initializer=gc.freeze) as pool:
            yield from track(pool.map(run, seeds, chunksize=2))


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


def _print_violation(result: SeedResult, drawn: _Drawn) -> None:
    _print_what_happened(result)
    again = f"--nodes {result.nodes} --topology {drawn.topology} --seed {result.seed}"
    click.echo(f"  again: federator-lab sim {again} --seeds 1 --workers 1{drawn.options()}")


def _print_shortest(result: SeedResult, drawn: _Drawn) -> None:
    """The shortest story that fails as the one of this seed does, and where it is kept."""
    whole = _story_of(result.seed, drawn)
    shortest = shrink(run_story, whole, result, parts=stories.PARTS, simpler=stories.simpler)
    path = Path(tempfile.gettempdir()) / f"federator-sim-{result.seed}.json"
    path.write_bytes(stories.encode(shortest.story))
    _print_what_happened(shortest.result)
    click.echo(f"  the shortest story found in {shortest.runs} runs:")
    _print_story(shortest.story)
    click.echo(f"  again: federator-lab sim --replay {path}")


def _replay(path: Path) -> None:
    try:
        story = stories.decode(path.read_bytes())
    except DecodeError as error:
        raise click.ClickException(f"{path}: {error}") from error
    result = run_story(story)
    _print_story(story)
    if result.violation is None:
        click.echo("nothing was violated")
    else:
        _print_what_happened(result)
        sys.exit(VIOLATED)


def _print_story(story: stories.MessageStory) -> None:
    for line in stories.lines_of(story):
        click.echo(f"    {line}")


def _print_what_happened(result: SeedResult) -> None:
    violation = result.violation
    assert violation is not None, "called for violations only"
    click.echo("")
    click.echo(f"seed {result.seed} ({result.topology}) at {violation.at_ms} ms")
    click.echo(f"  {violation.invariant}: {violation.detail}")
    for event in violation.last_events:
        click.echo(f"  {event[:LAST_EVENT_CHARS_MAX]}")

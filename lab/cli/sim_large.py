"""``federator-lab sim-large``: ten thousand brokers in one run, most of them leaves.

Exit codes: 0 when every invariant held, and with ``--table`` a leaf cost as much in all worlds;
1 otherwise.
"""

import gc
import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import click

from federator.cli.options import columns, json_option, option
from lab.frame.printing import tell
from lab.sim.large.plan import AREAS_MAX, HUBS_MAX, LEAVES_MAX, draw, room_for
from lab.sim.large.run import Outcome, run

FAILED = 1
FLAT = 1.2
"""What a leaf may cost in the dearest world, in times of what it costs in the cheapest."""

WORLDS = ((10, 10), (10, 100), (100, 100))
"""Hubs and leaves at each: first the leaves grow in number, then the hubs."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A run, and what it took."""

    outcome: Outcome
    seconds: float
    processor_seconds: float
    peak_mb: int


def _measure(
    hubs: int, leaves: int, areas: int, deaths: int, seed: int, filters_max: int
) -> Measured:
    """One run, with a process to itself."""
    started = time.monotonic()

    def say(what: str) -> None:
        click.echo(f"  {time.monotonic() - started:7.0f} s  {what}", err=True)

    gc.disable()  # nothing to speak of is garbage, and looking for it would take half of the time
    large = draw(seed, hubs=hubs, leaves=leaves, filters_max=filters_max, areas=areas)
    outcome = run(large, deaths=deaths, say=say)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024
    return Measured(outcome, time.monotonic() - started, time.process_time(), peak_mb)


@click.command(name="sim-large")
@option("--hubs", type=click.IntRange(2, HUBS_MAX), default=100, help="In a sparse random mesh.")
@option("--leaves", type=click.IntRange(1, LEAVES_MAX), default=100, help="At each hub.")
@option(
    "--areas",
    type=click.IntRange(1, AREAS_MAX),
    default=1,
    help="Divide the hubs among areas that see each other through a mesh above.",
)
@click.option("--deaths", type=click.IntRange(0), help="Of hubs. [as many as there are hubs]")
@option("--seed", type=click.IntRange(0), default=0, help="What all is drawn from.")
@click.option(
    "--filters-max", type=click.IntRange(3), help="hub.filters_max. [room for a hub's own leaves]"
)
@click.option("--table", is_flag=True, help="100, 1,000 and 10,000 leaves, one after the other.")
@json_option
def command(
    hubs: int,
    leaves: int,
    areas: int,
    deaths: int | None,
    seed: int,
    filters_max: int | None,
    table: bool,
    as_json: bool,
) -> None:
    """Run hubs and their leaves by the thousand in a simulated world: a cold start, then deaths.

    Everything must stand, publications must arrive once, also while hubs die, and all must heal;
    what is looked at everywhere, and what by samples, is in docs/simulator.md.
    """
    if hubs % areas:
        raise click.UsageError(f"--areas {areas} does not divide --hubs {hubs}")
    if table and areas > 1:
        raise click.UsageError("--table is of worlds without --areas")
    measured = []
    for many, each in WORLDS if table else [(hubs, leaves)]:
        where = f", {areas} areas" if areas > 1 else ""
        click.echo(f"seed {seed}: {many} hubs, {each} leaves at each{where}", err=True)
        room = filters_max or room_for(max(leaves for _, leaves in WORLDS) if table else each)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            wanted = many if deaths is None else deaths
            measured.append(pool.submit(_measure, many, each, areas, wanted, seed, room).result())
    lines = columns(list(_rows(measured)))
    violated = [each.outcome.violation for each in measured if each.outcome.violation]
    lines += [f"violated: {violation}" for violation in violated]
    costs = [each.outcome.at_rest.leaf_bytes for each in measured]
    flat = max(costs) <= FLAT * min(costs)
    if not violated and len(measured) > 1:
        lines.append(f"a leaf {'costs' if flat else 'does NOT cost'} as much in all")
    held = flat and not violated
    tell(lines, {"held": held, "worlds": measured}, as_json=as_json)
    if not held:
        sys.exit(FAILED)


def _parts(world: Outcome) -> str:
    """Of how many hubs, with how many leaves each, in how many areas a world is."""
    if not world.areas:
        return f"{world.hubs} x {world.leaves // world.hubs}"
    below = world.hubs - world.areas
    return f"{world.areas} above, {below} x {world.leaves // below}"


def _rows(measured: list[Measured]) -> Iterator[tuple[str, ...]]:
    """One line for each figure, one column for each world."""
    outcomes = [each.outcome for each in measured]
    yield ("brokers", *(f"{o.brokers:,} ({_parts(o)})" for o in outcomes))
    yield ("events", *(f"{o.events:,}" for o in outcomes))
    yield ("simulated", *(f"{o.simulated_ms / 1_000:,.0f} s" for o in outcomes))
    took = [(each.seconds, each.processor_seconds) for each in measured]
    yield ("took", *(f"{wall:,.0f} s, {busy:,.0f} s of a core" for wall, busy in took))
    yield ("peak memory", *(f"{each.peak_mb:,} MB" for each in measured))
    yield ("stands after", *(f"{o.converged_ms / 1_000:.1f} s" for o in outcomes))
    yield ("deaths of hubs", *(f"{o.deaths}" for o in outcomes))
    yield ("heals in", *(f"{o.healed_ms / 1_000:.1f} s" for o in outcomes))
    yield ("published", *(f"{o.published:,}, {o.excused:,} excused" for o in outcomes))
    yield ("filters told to a leaf", *(f"{o.told:,}" for o in outcomes))
    yield ("filters known to a hub", *(f"{o.held:,}" for o in outcomes))
    for when, traffic in (
        ("at rest", [o.at_rest for o in outcomes]),
        ("overall", [o.overall for o in outcomes]),
    ):
        yield (
            f"a leaf's link, {when}",
            *(f"{t.leaf_messages:.2f}/s, {t.leaf_bytes:,.0f} B/s" for t in traffic),
        )
        yield (
            f"a hub in the mesh, {when}",
            *(f"{t.hub_messages:.1f}/s, {t.hub_bytes:,.0f} B/s" for t in traffic),
        )

"""Tells the story of one seed: faults first, then healing, then the demand to converge.

Invariants are checked after every event of both phases. After healing the federation has a bound,
derived from the timers, to converge; then one probe from every broker must reach every broker that
wants it exactly once.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from federator.protocol.types import BrokerId
from lab.sim import convergence
from lab.sim.agenda import Clocked, RunawayError
from lab.sim.convergence import demand
from lab.sim.faults import schedule
from lab.sim.invariants import Invariants
from lab.sim.scenario import TOPICS, Scenario
from lab.sim.steering import (
    halves,
    marked,
    only_collected,
    schedule_plans,
    tell_plan,
)
from lab.sim.topics import topic_matches
from lab.sim.watcher import InvariantError
from lab.sim.world import World

CHECK_EVERY_MS = 250
NEW_FILTER = "fresh/+/filter"


@dataclass(frozen=True, slots=True)
class Violation:
    """What went wrong in a seed, and just before."""

    invariant: str
    detail: str
    at_ms: int
    last_events: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One seed's outcome."""

    seed: int
    topology: str
    nodes: int
    converged_ms: int | None  # time from healing to convergence, or ``None``
    bound_ms: int  # what it was allowed
    fired: dict[str, int] = field(default_factory=dict)  # how often: faults, messages, notices
    calls: int = 0  # calls on the world's agenda: what the seed cost
    violation: Violation | None = None


def run_scenario(scenario: Scenario) -> SeedResult:
    """Run one seed to its end or to the first violation."""
    invariants = Invariants()
    world = World(scenario.plan, seed=scenario.seed, watcher=invariants)
    invariants.attach(world)
    bound_ms = convergence.bound_ms(scenario.plan)

    def acts() -> Iterator[int]:
        _play(world, scenario)
        steered = bool(scenario.plans)
        yield _converge(world, invariants, scenario.heal_ms, bound_ms, steered=steered)
        _mix_plans(world, scenario)
        # Who lost a core looks as if it had it, until nobody answered its solicit.
        timeout_ms = scenario.plan.parameters.solicit_timeout_ms
        world.run_until(max(world.now_ms, scenario.heal_ms + timeout_ms))
        _converge(world, invariants, scenario.heal_ms, bound_ms, steered=steered)
        _subscribe_anew(world, scenario)
        if scenario.stays:
            world.run_until(scenario.heal_ms + bound_ms)
            demand("stays_converged", convergence.complaints(world))

    nothing = SeedResult(scenario.seed, scenario.topology, len(scenario.plan.ids), None, bound_ms)
    return told(nothing, world, acts())


def told(nothing: SeedResult, world: Clocked, acts: Iterator[int]) -> SeedResult:
    """``nothing`` filled in: ``acts`` played to their end or to the first violation.

    They yield once, when the world has converged: how long that took, in ms.
    """
    converged_ms: int | None = None
    violation: Violation | None = None
    try:
        converged_ms = next(acts)
        next(acts, None)
    except Exception as error:  # Whatever the protocol raises is a finding, not the end.
        violation = _violation_of(world, error)
    return replace(
        nothing,
        converged_ms=converged_ms,
        fired=dict(sorted(world.fired.items())),
        calls=world.agenda.calls_made,
        violation=violation,
    )


Wrong = Callable[[], Iterable[str]]
"""What is not as it must become."""


def stand(
    world: Clocked,
    wrong: Mapping[str, Wrong],
    *,
    until_ms: int,
    every_ms: int = CHECK_EVERY_MS,
    calm_ms: int = 0,
) -> int:
    """Run until nothing is wrong, and is not for ``calm_ms``; since when.

    ``wrong``: what is, by the name of the invariant, at which it is when it still is ``until_ms``.
    """
    since_ms: int | None = None
    while True:
        if any(next(iter(found()), None) is not None for found in wrong.values()):
            since_ms = None
        elif since_ms is None:
            since_ms = world.now_ms
        if since_ms is not None and world.now_ms - since_ms >= calm_ms:
            return since_ms
        if world.now_ms >= until_ms:
            for invariant, found in wrong.items():
                demand(invariant, found())
        world.run_until(world.now_ms + every_ms)


def _play(world: World, scenario: Scenario) -> None:
    """The faulty phase."""
    schedule(world, scenario.faults)
    for change in scenario.changes:
        world.agenda.at(change.at_ms, world.set_filters, change.node, change.filters)
    for item in scenario.publications:
        world.agenda.at(item.at_ms, world.publish, item.node, item.topic, item.count)
    schedule_plans(world, scenario.plans, until_ms=scenario.heal_ms)
    world.run_until(scenario.heal_ms)
    world.wires.loss = 0.0
    world.wires.duplication = 0.0


def _converge(
    world: World, invariants: Invariants, heal_ms: int, bound_ms: int, *, steered: bool
) -> int:
    """Run until converged and a probe proves it; how long it took.

    What looks converged may still change within the bound, when the last echo of a fault arrives.
    So a probe that missed somebody is repeated then; one that came twice is never right.
    """
    shortest = convergence.finds_shortest(world.plan)
    wrong = {"converges": partial(convergence.complaints, world, shortest=shortest)}
    until_ms = heal_ms + bound_ms
    while True:
        since_ms = stand(world, wrong, until_ms=until_ms)
        fixed = not steered and all(link.cost is not None for link in world.plan.links)
        if shortest and fixed and world.plan.shortest.issuperset(world.plan.ids):
            invariants.demand_shortest(_least_costs(world))
        missed = _probe(world)
        invariants.demand_shortest(None)
        if not missed:
            return since_ms - heal_ms
        if since_ms >= until_ms:
            raise InvariantError("probe_reaches_each_once", missed)
        world.run_until(world.now_ms + CHECK_EVERY_MS)


def _least_costs(world: World) -> dict[BrokerId, convergence.Costs]:
    return {
        id: convergence.costs_from(world, part.ids, id)
        for part in convergence.parts_of(world)
        for id in part.ids
    }


def _subscribe_anew(world: World, scenario: Scenario) -> None:
    """In a calm federation a mesh comes and goes at once, whatever the intervals are."""
    alive = sorted(id for part in convergence.parts_of(world) for id in part.ids)
    id = alive[scenario.seed % len(alive)]
    before = world.filters[id]
    for filters in (before | {NEW_FILTER}, before):
        world.set_filters(id, filters)
        until_ms = world.now_ms + convergence.calm_bound_ms(scenario.plan)
        wrong = {"triggered_updates": partial(convergence.complaints, world)}
        stand(world, wrong, until_ms=until_ms)


def _mix_plans(world: World, scenario: Scenario) -> None:
    """In the calm everything arrives once, whoever follows which plan, and while that changes."""
    for moment in scenario.plans:
        if moment.at_ms > scenario.heal_ms:
            early, late = halves(moment)
            tell_plan(world, early)
            world.agenda.at(world.now_ms + world.plan.delay_ms_max, tell_plan, world, late)
            missed = _probe(world)
            # What is collected is announced, and while a core announces, parents in its meshes may
            # move: then a probe of QoS 0 may miss somebody, but not the next one, too.
            if missed and (not world.plan.hubs or (missed := _probe(world))):
                raise InvariantError("mixed_plans_reach_each_once", missed)


def _probe(world: World) -> str:
    """Publish once from every broker; whom that missed, or nothing when it reached everyone."""
    probes: dict[int, frozenset[BrokerId]] = {}
    collects, kept = marked(world), set[int]()
    for part in convergence.parts_of(world):
        wanted = {
            topic: frozenset(
                id
                for filter, who in part.subscribers.items()
                if topic_matches(filter, topic)
                for id in who
            )
            for topic in TOPICS
        }
        exported_filters = [topic for topic in TOPICS if wanted[topic]]
        for at, id in enumerate(sorted(part.ids) if exported_filters else ()):
            topic = exported_filters[at % len(exported_filters)]
            number = world.publish(id, topic)[0]
            probes[number] = wanted[topic] - {id}
            if only_collected(topic, id, part.subscribers, collects):
                kept.add(number)
    # By a planned tree to its end, and from there the ordinary way.
    hops_max = 2 * len(world.plan.ids)
    world.run_until(world.now_ms + hops_max * (world.plan.delay_ms_max + 1))
    missed = ""
    for number, expected in probes.items():
        got = world.delivered[number]
        detail = (
            f"{world.topics[number]!r} from {world.origins[number]} reached {dict(got)},"
            f" wanted {sorted(expected)}"
        )
        if any(times != 1 for times in got.values()) or not set(got) <= expected:
            raise InvariantError("probe_reaches_each_once", detail)
        if set(got) != expected and (got or number not in kept):
            missed = missed or detail
    return missed


def _violation_of(world: Clocked, error: Exception) -> Violation:
    if isinstance(error, InvariantError):
        invariant, detail = error.invariant, error.detail
    elif isinstance(error, RunawayError):
        invariant, detail = "no_storm", str(error)
    else:
        where = traceback.extract_tb(error.__traceback__)[-1]
        invariant = "nothing_raises"
        detail = f"{error!r} at {where.filename}:{where.lineno} in {where.name}"
    events = tuple(f"{at_ms:>8} ms  {id:>4}  {what}" for at_ms, id, what in world.trace)
    return Violation(invariant, detail, world.now_ms, events)

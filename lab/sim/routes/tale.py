"""Tells a story of routes: faults first, then healing, then the demand to converge.

Invariants are checked after every event of both phases. After healing the federation has a bound,
derived from the timers, to converge; then one probe from every broker must reach every broker that
wants it exactly once.
"""

from collections.abc import Iterator
from functools import partial

from federator.protocol.types import BrokerId
from lab.sim import convergence
from lab.sim.faults import schedule
from lab.sim.invariants import Invariants
from lab.sim.parts import InvariantError
from lab.sim.routes.draw import TOPICS
from lab.sim.steering import halves, marked, only_collected, schedule_plans, tell_plan
from lab.sim.story import Story
from lab.sim.tale import CHECK_EVERY_MS, Tale, demand, stand
from lab.sim.topics import topic_matches
from lab.sim.world import World

NEW_FILTER = "fresh/+/filter"


def tale_of(story: Story) -> Tale:
    world = World(story.plan, seed=story.seed, parts=(Invariants,))
    bound_ms = convergence.bound_ms(story.plan)
    return Tale(world, bound_ms, _acts(world, story, bound_ms))


def _acts(world: World, story: Story, bound_ms: int) -> Iterator[int]:
    _play(world, story)
    steered = bool(story.plans)
    yield _converge(world, story.heal_ms, bound_ms, steered=steered)
    _mix_plans(world, story)
    # Who lost a core looks as if it had it, until nobody answered its solicit.
    timeout_ms = story.plan.parameters.solicit_timeout_ms
    world.run_until(max(world.now_ms, story.heal_ms + timeout_ms))
    _converge(world, story.heal_ms, bound_ms, steered=steered)
    _subscribe_anew(world, story)
    if story.stays:
        world.run_until(story.heal_ms + bound_ms)
        demand("stays_converged", convergence.complaints(world))


def _play(world: World, story: Story) -> None:
    schedule(world, story.faults)
    for change in story.changes:
        filters = frozenset(filter for filter, _ in change.filters)
        world.agenda.at(change.at_ms, world.set_filters, change.client, filters)
    for item in story.publications:
        world.agenda.at(item.at_ms, world.publish, item.node, item.topic, item.count)
    schedule_plans(world, story.plans, until_ms=story.heal_ms)
    world.run_until(story.heal_ms)
    world.wires.loss = 0.0
    world.wires.duplication = 0.0


def _converge(world: World, heal_ms: int, bound_ms: int, *, steered: bool) -> int:
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
            world.part(Invariants).demand_shortest(_least_costs(world))
        missed = _probe(world)
        world.part(Invariants).demand_shortest(None)
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


def _subscribe_anew(world: World, story: Story) -> None:
    """In a calm federation a mesh comes and goes at once, whatever the intervals are."""
    alive = sorted(id for part in convergence.parts_of(world) for id in part.ids)
    id = alive[story.seed % len(alive)]
    before = world.filters[id]
    for filters in (before | {NEW_FILTER}, before):
        world.set_filters(id, filters)
        until_ms = world.now_ms + convergence.calm_bound_ms(story.plan)
        wrong = {"triggered_updates": partial(convergence.complaints, world)}
        stand(world, wrong, until_ms=until_ms)


def _mix_plans(world: World, story: Story) -> None:
    """In the calm everything arrives once, whoever follows which plan, and while that changes."""
    for moment in story.plans:
        if moment.at_ms > story.heal_ms:
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
        detail = f"{world.published[number]} reached {dict(got)}, wanted {sorted(expected)}"
        if any(times != 1 for times in got.values()) or not set(got) <= expected:
            raise InvariantError("probe_reaches_each_once", detail)
        if set(got) != expected and (got or number not in kept):
            missed = missed or detail
    return missed

"""What must become true once nothing goes wrong any more, and by when.

For every filter and every connected part of what is left: one core, the right one; a mesh that
spans all brokers with subscribers, on whose edges both ends agree; nothing left of meshes that
nobody wants. The bound is the sum of the timers that can stand in the way, one after the other.

Source: Spohn 2021, Theorem 2.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from federator.protocol.routing.meshes import HANDOVER_PERIODS_MAX
from federator.protocol.types import UNREACHABLE, BrokerId
from lab.sim.network import Agent
from lab.sim.plan import Link, WorldPlan
from lab.sim.topologies import connected_parts
from lab.sim.wires import BROKER_PATIENCE_MS
from lab.sim.world import World

Subscribers = dict[str, frozenset[BrokerId]]
Costs = dict[BrokerId, int]


def bound_ms(plan: WorldPlan) -> int:
    """How long after healing the federation may take to converge.

    In order, each at its worst: a broker drops a client that died on a silent path, and publishes
    its Will; the last back-off ends; both ends hear each other; the last word of a core that died
    expires everywhere; a round of solicits or refreshes goes out and comes back; the hand-over
    ends.
    """
    p = plan.parameters
    crossing_ms = len(plan.ids) * (plan.delay_ms_max + p.improvement_hold_ms + p.core_ann_gap_ms)
    lifetime_ms = p.core_lifetime_intervals * p.core_ann_interval_ms
    return (
        BROKER_PATIENCE_MS
        + plan.reconnect_ms_max
        + p.hello_timeout_ms
        + 2 * (p.hello_interval_ms + plan.delay_ms_max)
        + lifetime_ms
        + p.core_ann_interval_ms
        + p.solicit_timeout_ms
        + 3 * crossing_ms
        + 2 * p.list_request_gap_ms
        + HANDOVER_PERIODS_MAX * p.handover_ms
    )


def calm_bound_ms(plan: WorldPlan) -> int:
    """How long a new subscription may take to show everywhere when nothing is wrong.

    Out and back over at most every broker: a change is announced at once, never at an interval.
    """
    p = plan.parameters
    per_hop_ms = 2 * plan.delay_ms_max + p.improvement_hold_ms + 2 * p.core_ann_gap_ms
    return len(plan.ids) * per_hop_ms + HANDOVER_PERIODS_MAX * p.handover_ms


def finds_shortest(plan: WorldPlan) -> bool:
    """Do the delays let every announcement find the shortest paths?

    They do when a relay waits long enough for the cheaper copy, however long its way. Otherwise
    the number of repeats, which is bounded, may be used up by costlier copies that were faster.
    """
    return len(plan.ids) * plan.delay_ms_max <= plan.parameters.improvement_hold_ms


@dataclass(frozen=True, slots=True)
class Component:
    """Brokers that can reach each other, and what their clients want."""

    ids: frozenset[BrokerId]
    subscribers: Subscribers


def parts_of(world: World, among: Iterable[BrokerId] | None = None) -> list[Component]:
    """The connected parts of what runs, or of those ``among`` these that run."""
    ids = world.plan.ids if among is None else among
    alive = {id for id in ids if id in world.agents and world.brokers[id].running}
    links: list[Link] = [
        (link.a, link.b) for link in world.plan.links if link.a in alive and link.b in alive
    ]
    parts = []
    for ids in connected_parts(alive, links):
        wanted: dict[str, set[BrokerId]] = {}
        for id in ids:
            for filter in world.filters[id]:
                wanted.setdefault(filter, set()).add(id)
        subscribers = {filter: frozenset(who) for filter, who in sorted(wanted.items())}
        parts.append(Component(ids, subscribers))
    return parts


def complaints(
    world: World, *, shortest: bool = False, among: Iterable[BrokerId] | None = None
) -> Iterator[str]:
    """Everything that is not as it must become; ``shortest`` paths, too (``finds_shortest``).

    ``among``: the brokers that are looked at, with the links between them; otherwise all.
    """
    parts = parts_of(world, among)
    yield from _links_missing(world, {id for part in parts for id in part.ids})
    for part in parts:
        agents = {id: world.agents[id] for id in sorted(part.ids)}
        meshes, straight = _by_strategy(part, world.plan.shortest)
        for filter, subscribers in meshes.items():
            yield from _mesh_wrong(world, agents, filter, subscribers)
        yield from _destinations_wrong(world.plan, agents, straight)
        yield from _collectors_wrong(world, agents)
        if shortest:
            for core in sorted(_cores_in_use(agents, meshes) | _all_of(straight)):
                yield from _paths_wrong(world, agents, core)
        yield from _leftovers(agents, meshes)


def _links_missing(world: World, alive: set[BrokerId]) -> Iterator[str]:
    for link in world.plan.links:
        for here, there in ((link.a, link.b), (link.b, link.a)):
            if here in alive and there in alive and there not in world.agents[here].reach:
                yield f"{here} does not reach {there}"


def _mesh_wrong(
    world: World, agents: dict[BrokerId, Agent], filter: str, subscribers: frozenset[BrokerId]
) -> Iterator[str]:
    cores = {id: core_of(agent, filter) for id, agent in agents.items()}
    agreed = set(cores.values())
    core = cores[min(agents)]
    if len(agreed) != 1 or core is None:
        yield f"{filter!r}: cores {cores}"
        return
    if core not in agents:
        yield f"{filter!r}: core {core} is not in this part"
        return
    smallest = min(_rank(world, id) for id in subscribers)
    members = {id for id in agents if is_member(agents[id], filter, core)}
    if _rank(world, core) > smallest:
        yield f"{filter!r}: core {core}, but {smallest} has subscribers"
    if core not in subscribers and not children(agents[core], filter, core):
        yield f"{filter!r}: core {core} has neither subscribers nor children"
    for id, agent in agents.items():
        meshes = agent.node.meshes
        for parent in meshes.parents_of(core) if id in members and id != core else ():
            if parent not in agents or id not in children(agents[parent], filter, core):
                yield f"{filter!r}: {id} has parent {parent}, which does not know it"
        for child in children(agent, filter, core):
            if child not in members or id not in agents[child].node.meshes.parents_of(core):
                yield f"{filter!r}: {id} has child {child}, which does not know it"
    cut_off = subscribers - _spanned(agents, filter, core)
    if cut_off:
        yield f"{filter!r}: core {core} does not reach {sorted(cut_off)}"


def _by_strategy(part: Component, shortest: frozenset[BrokerId]) -> tuple[Subscribers, Subscribers]:
    """Who must be in the mesh of each filter, and who is a destination of it."""
    each = part.subscribers.items()
    meshes = {filter: who - shortest for filter, who in each if who - shortest}
    return meshes, {filter: who & shortest for filter, who in each if who & shortest}


def _all_of(subscribers: Subscribers) -> set[BrokerId]:
    return {id for who in subscribers.values() for id in who}


def _destinations_wrong(
    plan: WorldPlan, agents: dict[BrokerId, Agent], straight: Subscribers
) -> Iterator[str]:
    """Everybody knows every destination, and following the next hops leads there.

    Not so between leaves and their hubs in reserve, and beyond.
    """
    nobody: frozenset[BrokerId] = frozenset()
    ends = {end for ends in plan.roaming.items() for end in (ends[0], *ends[1])}
    for id, agent in agents.items():
        states = agent.node.topic_routing.states
        for filter in sorted({*states, *straight}):
            wanted = {e for e in straight.get(filter, nobody) if not plan.are_strangers(id, e)}
            state = states.get(filter)
            known = set() if state is None else {*state.brokers, *((id,) if state.local else ())}
            if known != wanted:
                yield f"{filter!r}: {id} knows destinations {known}, not {sorted(wanted)}"
    for id in agents:
        for end in sorted(_all_of(straight) - {id}):
            if not (id in ends and end in ends) and not leads(agents, id, end):
                yield f"the next hops from {id} do not lead to {end}"


def leads(agents: dict[BrokerId, Agent], here: BrokerId, end: BrokerId) -> bool:
    for _ in agents:
        if here == end:
            return True
        following = agents[here].data.forwarder.next_hop_to(end)
        if following is None or following not in agents:
            return False
        here = following
    return False


def _cores_in_use(agents: dict[BrokerId, Agent], meshes: Subscribers) -> set[BrokerId]:
    cores = {core_of(agent, f) for f in meshes for agent in agents.values()}
    return {core for core in cores if core in agents}


def costs_from(world: World, agents: Iterable[BrokerId], core: BrokerId) -> Costs:
    """The cost from ``core`` to each of ``agents`` over these, by textbook Dijkstra."""
    return _dijkstra(_nearby(world, agents), core)


def _nearby(world: World, agents: Iterable[BrokerId]) -> dict[BrokerId, Costs]:
    """What each of ``agents`` pays for the way to each neighbour; what it measures has no plan."""
    near: dict[BrokerId, Costs] = {id: {} for id in agents}
    for link in world.plan.links:
        for here, there in ((link.a, link.b), (link.b, link.a)):
            if here in near and there in near:
                measured = world.agents[here].node.links.cost_to(there) or UNREACHABLE
                near[here][there] = measured if link.cost is None else link.cost
    return near


def _dijkstra(near: dict[BrokerId, Costs], core: BrokerId) -> Costs:
    costs: Costs = {core: 0}
    border = [(0, core)]
    while border:
        cost, id = heapq.heappop(border)
        for other in near[id]:
            link_cost = near[other][id]
            if cost + link_cost < costs.get(other, UNREACHABLE):
                costs[other] = cost + link_cost
                heapq.heappush(border, (cost + link_cost, other))
    return costs


def _paths_wrong(world: World, agents: dict[BrokerId, Agent], core: BrokerId) -> Iterator[str]:
    """Parents are the smallest of the neighbours on a cheapest path, then others within the slack.

    All are closer to the core. Who was one while it cost less stays within twice the slack.
    """
    near = _nearby(world, agents)
    costs = dict.fromkeys(near, UNREACHABLE) | _dijkstra(near, core)
    redundancy = world.plan.parameters.redundancy
    share = world.plan.parameters.parent_slack_percent / 100
    for id, agent in agents.items():
        if id == core:
            continue
        parents = agent.node.meshes.parents_of(core)
        more = {n: costs[n] + near[id][n] - costs[id] for n in near[id] if costs[n] < costs[id]}
        best = sorted(n for n in more if not more[n])[:redundancy]
        if list(parents[: len(best)]) != best:
            yield f"{id} has parents {parents} to {core}, not {best} first"
        if not all(p in more and more[p] <= 2 * share * costs[id] for p in parents):
            yield f"{id} has parents {parents} to {core}, but they cost {more} more"
        within = sum(each <= share * costs[id] for each in more.values())
        if not min(redundancy, within) <= len(parents) <= redundancy:
            yield f"{id} has parents {parents} to {core} of {within} within the slack"


def _spanned(agents: dict[BrokerId, Agent], filter: str, core: BrokerId) -> set[BrokerId]:
    """Whom the mesh reaches from its core, child by child."""
    reached, border = {core}, [core]
    while border:
        for child in children(agents[border.pop()], filter, core):
            if child not in reached and child in agents:
                reached.add(child)
                border.append(child)
    return reached


def _collectors_wrong(world: World, agents: dict[BrokerId, Agent]) -> Iterator[str]:
    for hub in sorted(world.plan.hubs & agents.keys()):
        says = world.data_paths[hub].edge.collects
        for id, agent in agents.items():
            heard = agent.node.topic_routing.collected_by(hub)
            if id != hub and heard != says:
                yield f"{id} hears that {hub} collects {sorted(heard)}, not {sorted(says)}"


def _leftovers(agents: dict[BrokerId, Agent], meshes: Subscribers) -> Iterator[str]:
    for id, agent in agents.items():
        for filter, state in agent.node.meshes.states.items():
            if filter not in meshes:
                yield f"{filter!r}: {id} still knows it ({state})"
            elif state.previous is not None:
                yield f"{filter!r}: {id} still hands over from {state.previous}"
            elif state.route.next_hops != state.meshed:
                yield f"{filter!r}: {id} still floods to {state.route.next_hops}"


# What a node thinks.


def core_of(agent: Agent, filter: str) -> BrokerId | None:
    state = agent.node.meshes.states.get(filter)
    return None if state is None else state.core


def children(agent: Agent, filter: str, core: BrokerId) -> list[BrokerId]:
    return agent.node.meshes.children_of(core, filter)


def is_member(agent: Agent, filter: str, core: BrokerId) -> bool:
    if agent.id == core:
        return True
    return filter in agent.node.meshes.memberships.filters_of(core)


def _rank(world: World, id: BrokerId) -> tuple[int, BrokerId]:
    return (world.plan.priorities.get(id, 0), id)

"""Tells a story of failover: faults and drains first, then healing, then everyone must agree.

What must hold of controllers and takeovers stands here: always, and once the federation is whole.
The checks of ``lab.sim.invariants`` hold after every event, too: the session flow table travels in
the announcements that they watch.
"""

from collections.abc import Iterator
from functools import partial
from itertools import combinations

from federator.protocol.messages.guide import Guide
from federator.protocol.types import BrokerId
from lab.sim import convergence
from lab.sim.failover.clients import Client, Clients, takeover_in
from lab.sim.failover.part import Failover
from lab.sim.faults import schedule
from lab.sim.invariants import Invariants
from lab.sim.network import Agent
from lab.sim.parts import InvariantError
from lab.sim.plan import WorldPlan
from lab.sim.story import Fault, Story
from lab.sim.tale import Tale, demand, stand
from lab.sim.topologies import connected_parts
from lab.sim.world import World

CHECK_EVERY_MS = 500
AFTERWARDS_MS = 10_000  # once all agree, nothing may change any more: watched for so long


def bound_ms(plan: WorldPlan) -> int:
    """How long after healing everyone may take to agree on controller, states and takeovers.

    Announcements converge, the missed are waited for, a new controller waits, plans and is heard.
    """
    p = plan.failover
    assert p is not None, "there is failover"
    patience_ms = max(p.presence.gone_after_ms, p.presence.orphan_after_ms)
    waits_ms = patience_ms + p.presence.gone_after_ms + 2 * p.office_ms + 2 * p.plan_gap_ms
    return 2 * convergence.bound_ms(plan) + waits_ms + 2 * p.guide_gap_ms


def _parts_now(world: World) -> dict[BrokerId, int]:
    """The number of the part that each running broker is in."""
    hearing = {
        id for id, agent in world.agents.items() if world.brokers[id].running and not agent.pauses
    }
    links = [
        (link.a, link.b)
        for link in world.plan.links
        if hearing.issuperset((link.a, link.b))
        and not any(path.cuts for path in world.paths_of(link.a, link.b, both=True))
    ]
    return {id: i for i, part in enumerate(connected_parts(hearing, links)) for id in part}


class FailoverInvariants(Invariants):
    """Every check of one run, those of announcements included."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        # By agent, its life and a broker: the substitute that its guide names, and since when (ms).
        self._named: dict[tuple[BrokerId, int, BrokerId], tuple[BrokerId, int]] = {}
        self._disturbed_ms: dict[BrokerId, int] = {}
        self._joined_ms = 0
        self._apart: set[tuple[BrokerId, BrokerId]] = set()  # pairs that do not hear each other
        self.terms: dict[tuple[BrokerId, int], dict[BrokerId, int]] = {}

    def disturb(self, id: BrokerId) -> None:
        """From now on until further notice, ``id`` may have been unfit to step in."""
        self._disturbed_ms[id] = self.world.now_ms

    def join(self) -> None:
        """Links came or went: parts may have met that decided apart."""
        self._joined_ms = self.world.now_ms

    def look_at_parts(self) -> None:
        """Note whether two brokers that run have met or parted since both last ran.

        Brokers that do not hear each other decide apart, and when they do again one decision gives
        way. A cut is not the only reason: an agent that is paused, or dead, parts those whom it
        joined. Its own absence parts nobody from it: while it is away it decides nothing that
        others must give way to.
        """
        part_of = _parts_now(self.world)
        for a, b in combinations(sorted(part_of), 2):
            apart = part_of[a] != part_of[b]
            if apart != ((a, b) in self._apart):
                self.join()
            (self._apart.add if apart else self._apart.discard)((a, b))

    def guided(self, agent: Agent, guide: Guide) -> None:
        """Names only others, keeps to a substitute that nothing befell, never reuses a term."""
        for made in guide.takeovers:
            if made.substitute == made.broker:
                raise InvariantError("others_step_in", f"{agent.id}: {made}")
            self._check_kept(agent, made.broker, made.substitute)
        terms = self.terms.setdefault((agent.id, agent.life), {})
        terms[guide.controller] = max(guide.epoch, terms.get(guide.controller, 0))
        for key in [k for k in self._named if k[:2] == (agent.id, agent.life)]:
            if takeover_in(guide, key[2]) is None:
                del self._named[key]

    def _check_kept(self, agent: Agent, broker: BrokerId, substitute: BrokerId) -> None:
        """A substitute is replaced only for a reason.

        Reasons are: it, its broker or the agent that names it was disturbed; or brokers that run
        met or parted, so that two decided apart (``look_at_parts``). That the controller was away
        and came back is none: what was decided meanwhile stands.
        """
        key = (agent.id, agent.life, broker)
        now_ms = self.world.now_ms
        former, since_ms = self._named.setdefault(key, (substitute, now_ms))
        if former == substitute:
            return
        quiet_ms = convergence.bound_ms(self.world.plan)
        befell_ms = max(
            self._joined_ms,
            *(self._disturbed_ms.get(id, -quiet_ms) for id in (former, broker, agent.id)),
        )
        if befell_ms + quiet_ms < since_ms:
            raise InvariantError(
                "substitutes_stay",
                f"{agent.id} has {substitute} for {broker} after {former},"
                f" which nothing befell since {since_ms} ms",
            )
        self._named[key] = (substitute, now_ms)


def terms_reused(failover: Failover, invariants: FailoverInvariants) -> Iterator[str]:
    """The controller at last has a newer term than anybody else whom those in reach followed."""
    world = failover.world
    for id, agent in sorted(world.agents.items()):
        guide = failover.guides[id]
        if guide is None or not world.brokers[id].running:
            continue
        for controller, term in sorted(invariants.terms[id, agent.life].items()):
            if controller != guide.controller and term >= guide.epoch:
                yield f"{id} had {controller} in {term}, then {guide.controller} in {guide.epoch}"


def complaints(failover: Failover) -> Iterator[str]:
    """Everything that is not as it must become; empty when the federation agrees."""
    world = failover.world
    for part in convergence.parts_of(world):
        agents = {id: world.agents[id] for id in sorted(part.ids)}
        yield from _controllers_wrong(world, agents)
        yield from _guides_wrong(failover, agents)
        yield from _tables_wrong(failover, agents)


def _controllers_wrong(world: World, agents: dict[BrokerId, Agent]) -> Iterator[str]:
    wanted = min(agents, key=lambda id: (world.plan.priorities.get(id, 0), id))
    for id, agent in agents.items():
        failover = agent.node.failover
        if failover.controller != wanted:
            yield f"{id} holds {failover.controller} for the controller, not {wanted}"
        if failover.is_controller != (id == wanted):
            yield f"{id} {'is' if failover.is_controller else 'is not'} the controller"


def _guides_wrong(failover: Failover, agents: dict[BrokerId, Agent]) -> Iterator[str]:
    guides, disks = {id: failover.guides[id] for id in agents}, failover.world.disks
    first = guides[min(guides)]
    fit = {id for id in agents if not disks[id].draining}
    for id, guide in guides.items():
        if guide is None or first is None:
            yield f"{id} has no guide"
            continue
        if (guide.epoch, guide.number) != (first.epoch, first.number):
            yield f"{id} is at {guide.epoch, guide.number}, not {first.epoch, first.number}"
        if not guide.epoch:
            yield f"{id} knows of no controller"
        if guide.takeovers != first.takeovers:
            yield f"{id} has takeovers {guide.takeovers}, not {first.takeovers}"
        leaving = set()
        for entry in guide.brokers:
            wanted = "gone"
            if entry.id in agents:
                wanted = "draining" if disks[entry.id].draining else "up"
            if entry.state != wanted:
                yield f"{id} says that {entry.id} is {entry.state}, not {wanted}"
            if wanted != "up":
                leaving.add(entry.id)
            if not set(entry.substitutes) <= fit - {entry.id}:
                yield f"{id} plans {entry.substitutes} for {entry.id}, fit are {sorted(fit)}"
            if entry.id in agents and len(entry.substitutes) < min(16, len(fit - {entry.id})):
                yield f"{id} plans only {entry.substitutes} for {entry.id}"
        taken = {t.broker: t.substitute for t in guide.takeovers}
        if fit and set(taken) != {b for b in leaving if fit - {b}}:
            yield f"{id} has substitutes for {sorted(taken)}, wanted for {sorted(leaving)}"
        if not set(taken.values()) <= fit:
            yield f"{id} has substitutes {taken}, fit are {sorted(fit)}"


def _tables_wrong(failover: Failover, agents: dict[BrokerId, Agent]) -> Iterator[str]:
    for id, agent in agents.items():
        for other in agents:
            rows = set(agent.node.failover.table.rows(other))
            if rows != failover.rows[other]:
                yield f"{id} has rows {rows} of {other}, not {failover.rows[other]}"


def tale_of(story: Story) -> Tale:
    world = World(story.plan, seed=story.seed, parts=(FailoverInvariants, Failover))
    invariants, failover = world.part(FailoverInvariants), world.part(Failover)
    limit_ms = bound_ms(story.plan)
    return Tale(world, limit_ms, _acts(failover, invariants, story, limit_ms))


def _acts(
    failover: Failover, invariants: FailoverInvariants, story: Story, limit_ms: int
) -> Iterator[int]:
    clients = Clients(failover, [Client(*drawn) for drawn in story.followers])
    clients.run(story.heal_ms + limit_ms + AFTERWARDS_MS)
    _play(failover, invariants, story)
    yield _agree_for_good(failover, clients, story.heal_ms, limit_ms)
    demand("terms_grow", terms_reused(failover, invariants))


def _play(failover: Failover, invariants: FailoverInvariants, story: Story) -> None:
    world = failover.world
    schedule(world, story.faults)
    for fault in story.faults:
        for at_ms in (fault.at_ms, fault.until_ms):
            world.agenda.at(at_ms, _note, invariants, fault)
    for order in story.drains:
        world.agenda.at(order.at_ms, failover.order_drain, order.at, order.broker, order.drain)
        world.agenda.at(order.at_ms, invariants.disturb, order.broker)
    world.run_until(story.heal_ms)


def _note(invariants: FailoverInvariants, fault: Fault) -> None:
    if fault.node is None:
        invariants.join()
    else:
        invariants.disturb(fault.node)
    # When a fault ends, what it stopped starts in this same instant, but later.
    invariants.world.agenda.at(invariants.world.now_ms, invariants.look_at_parts)


def _agree_for_good(failover: Failover, clients: Clients, heal_ms: int, limit_ms: int) -> int:
    """Run until everybody agrees, and nothing changes any more; how long agreeing took.

    What looks agreed may still change within the bound, when the last echo of a fault arrives.
    """
    world, until_ms = failover.world, heal_ms + limit_ms
    wrong = {"agrees": partial(complaints, failover)}
    while True:
        agreed_ms = stand(world, wrong, until_ms=until_ms, every_ms=CHECK_EVERY_MS) - heal_ms
        before = _situation(world, clients)
        world.run_until(world.now_ms + AFTERWARDS_MS)
        if before == _situation(world, clients) and next(complaints(failover), None) is None:
            demand("clients_are_served", _unserved(world, clients))
            return agreed_ms
        if world.now_ms >= until_ms + AFTERWARDS_MS:
            demand("stays_agreed", complaints(failover))
            after = _situation(world, clients)
            demand("stands_still", [f"{before} became {after}"] if before != after else [])


def _situation(world: World, clients: Clients) -> tuple[dict[BrokerId, int], list[int]]:
    """Everyone's term, and how often each client was moved."""
    terms = {id: int(agent.node.failover.guide().epoch) for id, agent in world.agents.items()}
    return terms, [len(client.moved_for) for client in clients.all]


def _unserved(world: World, clients: Clients) -> list[str]:
    """Clients on brokers that are dead, although somebody else lives."""
    alive: set[BrokerId] = {id for id in world.agents if world.brokers[id].running}
    return [
        f"{client.name} is at {client.at}, alive are {sorted(alive)}"
        for client in clients.all
        if alive and not world.brokers[client.at].running
    ]

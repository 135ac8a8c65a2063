"""What must never be true, whatever goes wrong; checked after every event.

Each check looks only at what the event can have changed, so that a seed stays fast. Where the
protocol's code is clever, the check is stupid: topics are matched level by level, masks are added
up, costs are compared one by one.

Source: Spohn 2021, Theorem 1; RFC 8966, 2.4.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from federator.protocol.effects import Effect, Send
from federator.protocol.events import Event, LocalFiltersChanged, Received
from federator.protocol.forwarding.frames import Frame
from federator.protocol.messages import control
from federator.protocol.messages.destinations import names_tree
from federator.protocol.messages.serving import is_served_record
from federator.protocol.messages.session_records import PREFIX
from federator.protocol.routing.core_route import Number
from federator.protocol.types import UNREACHABLE, BrokerId, Cost
from lab.sim.convergence import Costs
from lab.sim.network import Agent
from lab.sim.parts import InvariantError, Part
from lab.sim.topics import topic_matches
from lab.sim.world import World

ANNOUNCEMENT_SENDS_PER_LINK_MAX = 3
CALM_MS = 1_000
"""An announcement's cost is held to its bound when no link changed since this long before it."""


_Number = tuple[BrokerId, int, int, bool]
"""Origin, epoch and number of a frame; those under custody are numbered apart."""


@dataclass(slots=True)
class _Flood:
    """The publications of one announcement so far."""

    first_ms: int
    sends: int = 0


class Invariants(Part):
    """Every check of one run."""

    links_stay = False  # from now on no link may go down

    def __init__(self, world: World, *, among: Container[BrokerId] | None = None) -> None:
        """``among``: the agents of which routes are looked at; ``None``: all."""
        self.world = world
        self._among = among
        self.floods: dict[tuple[BrokerId, int, int], _Flood] = {}
        self._bound = ANNOUNCEMENT_SENDS_PER_LINK_MAX * len(world.plan.links)
        self._starts = 0
        self._starts_before: dict[_Number, int] = {}
        self._sent_masks: dict[tuple[BrokerId, int, BrokerId, _Number], int] = {}
        self._delivered: set[tuple[BrokerId, int, int]] = set()
        self._known_filters: dict[BrokerId, frozenset[str]] = {}
        self._checked: dict[tuple[BrokerId, BrokerId], tuple[Number, Cost, tuple[BrokerId, ...]]]
        self._checked = {}
        self._links_changed_ms = 0
        self._shortest: Mapping[BrokerId, Costs] | None = None
        self._travelled: dict[tuple[_Number, BrokerId], int] = {}
        self._measured: dict[tuple[BrokerId, BrokerId], Cost | None] = {}
        self._link_costs = {
            ends: link.cost or 0
            for link in world.plan.links
            for ends in ((link.a, link.b), (link.b, link.a))
        }

    def demand_shortest(self, costs: Mapping[BrokerId, Costs] | None) -> None:
        """Each frame made from now on goes to each broker once, at the least cost.

        ``costs`` are by origin and destination; ``None`` takes the demand back.
        """
        self._shortest = costs
        self._travelled = {}

    # --- control ---

    def starting(self, agent: Agent) -> None:
        self._known_filters[agent.id] = frozenset()
        if not self._follows(agent):
            return
        self._starts += 1
        for key in [key for key in self._checked if key[0] == agent.id]:
            del self._checked[key]
        self._links_changed_ms = self.world.now_ms

    def stopped(self, agent: Agent, *, orderly: bool) -> None:
        if self._follows(agent):
            self._links_changed_ms = self.world.now_ms

    def reach_changed(self, agent: Agent, neighbour: BrokerId) -> None:
        if not self._follows(agent):
            return
        self._links_changed_ms = self.world.now_ms
        if self.links_stay and neighbour not in agent.reach:
            raise InvariantError("links_stay", f"{agent.id} lost {neighbour}")

    def _follows(self, agent: Agent) -> bool:
        return self._among is None or agent.id in self._among

    def sent(self, agent: Agent, target: BrokerId, send: Send) -> None:
        if not self._follows(agent):
            return
        message = send.message
        if isinstance(message, control.CoreAnn):
            self._count_announcement(message)
            filters: Sequence[str] = message.added
        elif isinstance(message, control.MeshMembAnn):
            filters = message.added
        elif isinstance(message, control.FilterListPage):
            filters = message.filters
            self.world.fired["sent list_page"] += 1
        else:
            if isinstance(message, control.Solicit):
                self.world.fired["sent solicit"] += 1
            return
        for filter in filters:
            if filter.startswith(PREFIX) or is_served_record(filter):
                continue
            if filter.removeprefix("$fed/to/").startswith("$"):
                raise InvariantError("local_topics_stay", f"{agent.id} tells {target} {filter!r}")

    def handled(self, agent: Agent, event: Event, effects: Sequence[Effect]) -> None:
        if isinstance(event, Received):
            message = event.message
            if isinstance(message, control.CoreAnn):
                self._check_route(agent, message.core)
                return
            if isinstance(message, control.Hello):
                self._note_cost(agent, message.sender)
            elif not isinstance(message, control.Bye):
                return
        elif isinstance(event, LocalFiltersChanged):
            known = self._known_filters[agent.id]
            self._known_filters[agent.id] = (known | event.added) - event.removed
        for effect in effects:
            if not (isinstance(effect, Send) and isinstance(effect.message, control.Hello)):
                for core in agent.node.announcements.routes:
                    self._check_route(agent, core)
                return

    def _note_cost(self, agent: Agent, neighbour: BrokerId) -> None:
        """What is measured changes: costs that grow are told to all, however often."""
        cost = agent.node.links.cost_to(neighbour)
        if cost != self._measured.get((agent.id, neighbour)):
            self._measured[agent.id, neighbour] = cost
            self._links_changed_ms = self.world.now_ms

    def _count_announcement(self, ann: control.CoreAnn) -> None:
        if ann.cost >= UNREACHABLE:
            self.world.fired["sent retraction"] += 1
            return
        key = (ann.core, ann.epoch, ann.seq)
        flood = self.floods.get(key)
        if flood is None:
            flood = self.floods[key] = _Flood(self.world.now_ms)
        flood.sends += 1
        if flood.sends > self._bound and self._links_changed_ms < flood.first_ms - CALM_MS:
            raise InvariantError(
                "announcement_cost",
                f"core {ann.core} number {key[1:]}: {flood.sends} publications,"
                f" at most {self._bound}",
            )

    def _check_route(self, agent: Agent, core: BrokerId) -> None:
        route = agent.node.announcements.routes.get(core)
        if route is None:
            return
        number = route.number
        key = (agent.id, core)
        last = self._checked.get(key)
        if last is not None and last == (number, route.feasible_cost, route.parents):
            return
        self._checked[key] = (number, route.feasible_cost, route.parents)
        former = number if last is None else last[0]
        if number < former:
            raise InvariantError(
                "numbers_grow", f"{agent.id} has core {core} at {number} after {former}"
            )
        if core not in self.world.brokers or core == agent.id:
            raise InvariantError("cores_exist", f"{agent.id} follows core {core}")
        for parent in route.parents:
            self._check_parent(agent, core, parent)

    def _check_parent(self, agent: Agent, core: BrokerId, parent: BrokerId) -> None:
        """A parent is closer to the core by all it ever said, so nobody is his own ancestor."""
        if parent == core:
            return
        other = self.world.agents.get(parent)
        route = agent.node.announcements.routes[core]
        if other is None or agent.node.links.neighbours[parent].epoch != other.node.links.epoch:
            return  # Not noticed yet that it restarted.
        theirs = other.node.announcements.routes.get(core)
        if theirs is None or theirs.number != route.number or parent in route.unconfirmed:
            return
        if theirs.feasible_cost >= route.feasible_cost:
            raise InvariantError(
                "cost_falls_towards_the_core",
                f"core {core} number {route.number}: {agent.id} at cost {route.feasible_cost} has"
                f" parent {parent} at cost {theirs.feasible_cost}",
            )

    # --- data ---

    def frame_sent(self, agent: Agent, target: BrokerId, frame: Frame) -> None:
        """No filter's copy crosses a link twice from one side; no frame walks in circles."""
        mask = frame.mask
        number: _Number = (frame.origin, int(frame.epoch), frame.seq, frame.acknowledged)
        key = (agent.id, agent.life, target, number)
        before = self._sent_masks.get(key, 0)
        # Back at its origin a frame may go once more to whom the tree leaves the ordinary way.
        is_back = agent.id == frame.origin and frame.hops > 0
        if before & mask and not is_back:
            raise InvariantError(
                "once_per_link",
                f"{agent.id} sends {target} frame {number} for {mask:#b} after {before:#b}",
            )
        self._sent_masks[key] = before | mask
        if self._shortest is not None:
            self._check_shortest(self._shortest, agent, target, number)
        # An agent that restarted forgot which frames it had: each can let one go round once more.
        restarts = self._starts - self._starts_before.setdefault(number, self._starts)
        # What a planned tree does not reach begins its ordinary way where the tree ends.
        ways = 2 if names_tree(frame.keys) else 1
        hops_max = ways * (len(self.world.plan.ids) - 1) + restarts
        if frame.hops > hops_max:
            raise InvariantError(
                "hops", f"{agent.id} takes frame {number} after {frame.hops} of {hops_max} hops"
            )

    def _check_shortest(
        self, costs: Mapping[BrokerId, Costs], agent: Agent, target: BrokerId, number: _Number
    ) -> None:
        origin = number[0]
        if agent.id != origin and (number, agent.id) not in self._travelled:
            return  # It was on its way already when this was demanded.
        if (number, target) in self._travelled:
            raise InvariantError("one_copy", f"{agent.id} sends {target} frame {number} again")
        travelled = self._travelled.get((number, agent.id), 0) + self._link_costs[agent.id, target]
        self._travelled[number, target] = travelled
        if travelled != costs[origin][target]:
            raise InvariantError(
                "shortest_path",
                f"frame {number} comes to {target} at cost {travelled}, not"
                f" {costs[origin][target]}",
            )

    def delivered(self, agent: Agent, publication: int, topic: str) -> None:
        """Each publication once per broker, as it was published, and only where asked for."""
        published = self.world.published
        if publication >= len(published) or published[publication].topic != topic:
            raise InvariantError("as_published", f"{agent.id} got {publication} on {topic!r}")
        if published[publication].broker == agent.id:
            raise InvariantError("not_back_home", f"{agent.id} got its own {publication}")
        key = (agent.id, agent.life, publication)
        if key in self._delivered:
            raise InvariantError("once_per_broker", f"{agent.id} got {publication} again")
        self._delivered.add(key)
        if not any(topic_matches(filter, topic) for filter in self._known_filters[agent.id]):
            raise InvariantError("asked_for", f"{agent.id} got {topic!r}, which nobody wants there")

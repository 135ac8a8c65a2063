"""The minutes that are played: two lives of one federation, under one routing and the other.

First mesh routing: a start, the death of a relay and its return, the death of the controller (which
is the core of every mesh it is in) and its return, a link cut and mended. Then all agents start
again under shortest-path routing, and the link is cut once more. Before each blow every stream
publishes once: the real frames show which links carry it. A recorder notes control messages,
changes, and who passes frames on.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from federator.protocol.controller.failover import FailoverParameters
from federator.protocol.effects import (
    Effect,
    FilterRoute,
    NeighbourReachable,
    NeighbourUnreachable,
    Notice,
    Send,
    SetRoute,
    StepIn,
)
from federator.protocol.events import Event
from federator.protocol.forwarding.frames import Frame
from federator.protocol.forwarding.publications import packets_in
from federator.protocol.messages import codec
from federator.protocol.messages.control import CoreAnn, Message
from federator.protocol.parameters import Parameters, Strategy
from federator.protocol.types import BrokerId
from lab.event_log.layout import Layout
from lab.sim.agenda import Agenda
from lab.sim.data import number_of
from lab.sim.failover.part import Failover
from lab.sim.network import Agent
from lab.sim.parts import Part
from lab.sim.plan import LinkPlan, WorldPlan
from lab.sim.world import World


@dataclass(frozen=True, slots=True)
class Change:
    """An event as it stands in a log; who reports it is a broker's position."""

    at_ms: int
    broker: int
    kind: str
    neighbour: int | None = None
    filter: str | None = None
    subject: int | None = None
    detail: str | None = None
    value: int | None = None


class Recorder(Part):
    """Counts and notes by second of the world.

    Attributes:
        control: (second, broker, neighbour, kind, direction) to [messages, bytes].
        floods: (second, core) to announcements that it started.
        carried: Publication number to arcs over which it went.
        restless_ms: When a route or a link changed last.
    """

    def __init__(self) -> None:
        self.agenda: Agenda | None = None
        self.control: dict[tuple[int, int, int, str, str], list[int]] = {}
        self.floods: Counter[tuple[int, int]] = Counter()
        self.changes: list[Change] = []
        self.carried: dict[int, set[tuple[int, int]]] = {}
        self.restless_ms = 0
        self._announced: dict[int, tuple[int, int]] = {}
        self._encoded: tuple[Message | None, int] = (None, 0)
        self._routes: dict[tuple[int, str], tuple[int | None, tuple[BrokerId, ...]]] = {}

    @property
    def _now_ms(self) -> int:
        assert self.agenda is not None, "the recorder is given the world's agenda"
        return self.agenda.now_ms

    def starting(self, agent: Agent) -> None:
        """A change; what its last life had joined is forgotten."""
        self._note(agent.id, "agent_started", value=agent.life)
        self._routes = {key: route for key, route in self._routes.items() if key[0] != agent.id}

    def sent(self, agent: Agent, target: BrokerId, send: Send) -> None:
        """Counted at both ends; links here lose nothing."""
        message = send.message
        if message is not self._encoded[0]:
            self._encoded = (message, len(codec.encode(message)))
        second, kind = self._now_ms // 1_000, codec.kind_of(message)
        for here, there, way in ((agent.id, target, "out"), (target, agent.id, "in")):
            tally = self.control.setdefault((second, here, there, kind, way), [0, 0])
            tally[0] += 1
            tally[1] += self._encoded[1]
        if isinstance(message, CoreAnn) and message.core == agent.id:
            number = (message.epoch, message.seq)
            if self._announced.get(agent.id) != number:
                self._announced[agent.id] = number
                self.floods[second, agent.id] += 1

    def handled(self, agent: Agent, event: Event, effects: Sequence[Effect]) -> None:
        """Changes are among the effects."""
        for effect in effects:
            match effect:
                case NeighbourReachable(neighbour):
                    self._note(agent.id, "link_up", neighbour=neighbour)
                case NeighbourUnreachable(neighbour):
                    self._note(agent.id, "link_down", neighbour=neighbour)
                case SetRoute(filter, route):
                    self._routed(agent, filter, route)
                case StepIn(broker):
                    self._note(agent.id, "takeover", subject=broker)
                case Notice("controller.changed", _, details):
                    self._note(agent.id, "controller_changed", subject=int(details["controller"]))
                case _:
                    pass

    def frame_sent(self, agent: Agent, target: BrokerId, frame: Frame) -> None:
        """An arc that carries the publications in the frame."""
        for number in map(number_of, packets_in(frame.body)):
            self.carried.setdefault(number, set()).add((agent.id, target))

    def _routed(self, agent: Agent, filter_: str, route: FilterRoute | None) -> None:
        """Says what changed of a mesh: that we joined or left it, its core, our parents."""
        self.restless_ms = self._now_ms
        if filter_.startswith("$"):
            return
        key = (agent.id, filter_)
        if route is None:
            if self._routes.pop(key, None) is not None:
                self._note(agent.id, "mesh_left", filter=filter_)
            return
        state = agent.node.meshes.states.get(filter_)
        core = None if state is None else state.core
        parents = () if core is None else agent.node.meshes.parents_of(core)
        before = self._routes.get(key)
        self._routes[key] = (core, parents)
        if before is None:
            self._note(agent.id, "mesh_joined", filter=filter_, subject=core)
        elif before[0] != core:
            self._note(agent.id, "core_changed", filter=filter_, subject=core)
        elif before[1] != parents:
            parent = parents[0] if parents else None
            self._note(agent.id, "parent_changed", filter=filter_, neighbour=parent)

    def _note(
        self,
        broker: int,
        kind: str,
        **told: Any,  # noqa: ANN401  # fields of Change by name
    ) -> None:
        if kind in ("link_up", "link_down"):
            self.restless_ms = self._now_ms
        self.changes.append(Change(self._now_ms, broker, kind, **told))


REDUNDANCY = 2
QUIET_S = 5
"""The end of each scene that is repeated: as long as the interval between announcements."""

PROBE_S = 2
"""The time before the quiet end in which publications travel, and what they set off settles."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What happens at its start, and how long it lasts."""

    seconds: int
    blow: str = ""  # a name of ``_BLOWS``, or none


MESH_SCENES = (
    Scene(18),
    Scene(14, "relay dies"),
    Scene(16, "relay returns"),
    Scene(14, "controller dies"),
    Scene(16, "controller returns"),
    Scene(12, "link is cut"),
    Scene(12, "link is mended"),
)
SHORTEST_SCENES = (Scene(18), Scene(12, "link is cut"), Scene(12, "link is mended"))


@dataclass(slots=True)
class Act:
    """A scene as it was played. Brokers stand by position, times in seconds of the story."""

    start: int
    end: int
    strategy: Strategy
    settled: int = 0  # the first second in which all routes stand
    quiet: int = 0  # where the part begins that may be repeated; it lasts until ``end``
    carried: tuple[frozenset[tuple[int, int]], ...] = ()  # for each stream, its arcs once settled
    alive: frozenset[int] = frozenset()  # brokers that run
    lives: tuple[int, ...] = ()  # how often each agent has started
    up: frozenset[tuple[int, int]] = frozenset()  # arcs, as (from, to), that are up at the end


@dataclass(slots=True)
class Story:
    """All acts, one after the other."""

    acts: list[Act] = field(default_factory=list)
    # For each second (broker, neighbour, kind, direction, messages, bytes).
    control: dict[int, list[tuple[int, int, str, str, int, int]]] = field(default_factory=dict)
    # For each second (core, announcements).
    floods: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)  # in order; ``at_ms`` of the story

    @property
    def seconds(self) -> int:
        return self.acts[-1].end if self.acts else 0


def tell(layout: Layout, *, seed: int) -> Story:
    story = Story()
    lives = [0] * len(layout.ids)
    _play(story, layout, Strategy.MESH, MESH_SCENES, lives, seed=seed)
    _play(story, layout, Strategy.SHORTEST_PATH, SHORTEST_SCENES, lives, seed=seed)
    return story


def _play(
    story: Story,
    layout: Layout,
    strategy: Strategy,
    scenes: tuple[Scene, ...],
    lives: list[int],
    *,
    seed: int,
) -> None:
    offset = story.seconds
    notes = Recorder()
    world = World(_plan(layout, strategy), seed=seed, parts=(lambda _: notes, Failover))
    notes.agenda = world.agenda
    blows = _blows(world, layout)
    begun = 0
    for scene in scenes:
        end = begun + scene.seconds
        act = Act(offset + begun, offset + end, strategy, quiet=offset + end - QUIET_S)
        if scene.blow:
            blows[scene.blow]()
        world.run_until((end - QUIET_S - PROBE_S) * 1_000)
        act.settled = min(act.quiet, offset + notes.restless_ms // 1_000 + 1)
        act.carried = _probe(world, notes, layout)
        world.run_until(end * 1_000)
        act.alive = frozenset(world.agents)
        act.lives = tuple(lives[at] + world.lives[BrokerId(at)] for at in range(len(layout.ids)))
        act.up = frozenset((one.id, other) for one in world.agents.values() for other in one.reach)
        story.acts.append(act)
        begun = end
    for at in range(len(lives)):
        lives[at] += world.lives[BrokerId(at)]
    _take_over(story, notes, offset, story.seconds)


def _probe(world: World, notes: Recorder, layout: Layout) -> tuple[frozenset[tuple[int, int]], ...]:
    numbers = [world.publish(BrokerId(stream.origin), stream.topic)[0] for stream in layout.streams]
    world.run_until(world.now_ms + PROBE_S * 1_000)
    return tuple(frozenset(notes.carried.pop(number, ())) for number in numbers)


def _plan(layout: Layout, strategy: Strategy) -> WorldPlan:
    ids = tuple(BrokerId(at) for at in range(len(layout.ids)))
    links = tuple(
        LinkPlan(BrokerId(a), BrokerId(b), delay_ms_min=delay_ms, delay_ms_max=delay_ms)
        for (a, b), delay_us in zip(layout.arcs, layout.arc_us, strict=True)
        for delay_ms in (max(1, round(delay_us / 1_000)),)
        if a < b
    )
    return WorldPlan(
        ids,
        links,
        {id: frozenset(layout.filters[filter_] for filter_ in layout.wanted[id]) for id in ids},
        parameters=Parameters(redundancy=REDUNDANCY),
        shortest=frozenset(ids) if strategy is Strategy.SHORTEST_PATH else frozenset(),
        reconnect_ms_max=1_000,
        start_ms_max=2_000,
        failover=FailoverParameters(federation=layout.federation),
    )


def _blows(world: World, layout: Layout) -> dict[str, Callable[[], None]]:
    """What a scene can begin with: the host of a broker with many links dies, and so on."""
    degree = {at: sum(1 for arc in layout.arcs if arc[0] == at) for at in range(len(layout.ids))}
    relay = BrokerId(max(sorted(degree)[1:], key=lambda at: (degree[at], -at)))
    first = BrokerId(0)
    a, b = (BrokerId(at) for at in layout.arcs[0])

    def die(host: BrokerId) -> None:
        world.stop_agent(host)
        world.stop_broker(host)

    def come_back(host: BrokerId) -> None:
        world.start_broker(host)
        world.start_agent(host)

    def each_way(act: Callable[..., None]) -> None:
        for path in world.paths_of(a, b, both=True):
            act(path)

    return {
        "relay dies": lambda: die(relay),
        "relay returns": lambda: come_back(relay),
        "controller dies": lambda: die(first),
        "controller returns": lambda: come_back(first),
        "link is cut": lambda: each_way(world.wires.cut),
        "link is mended": lambda: each_way(world.wires.mend),
    }


def _take_over(story: Story, notes: Recorder, offset: int, end: int) -> None:
    for (second, broker, neighbour, kind, direction), tally in sorted(notes.control.items()):
        if offset + second < end:
            row = (broker, neighbour, kind, direction, tally[0], tally[1])
            story.control.setdefault(offset + second, []).append(row)
    for (second, core), count in sorted(notes.floods.items()):
        if offset + second < end:
            story.floods.setdefault(offset + second, []).append((core, count))
    for change in notes.changes:
        if offset * 1_000 + change.at_ms < end * 1_000:
            story.changes.append(replace(change, at_ms=offset * 1_000 + change.at_ms))

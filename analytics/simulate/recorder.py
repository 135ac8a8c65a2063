"""What is noted while the protocol plays: control messages, changes, and who passes frames on."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from federator.protocol import codec
from federator.protocol.effects import (
    Effect,
    FilterRoute,
    Notice,
    ReachNeighbour,
    Send,
    SetRoute,
    StepIn,
)
from federator.protocol.events import Event
from federator.protocol.messages import CoreAnn, Message
from federator.protocol.types import BrokerId
from federator.sim.agenda import Agenda
from federator.sim.agents import Agent
from federator.sim.data import Passage, publications_of
from federator.sim.watcher import Watcher


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


class Recorder(Watcher):
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

    def started(self, agent: Agent) -> None:
        """A change; what its last life had joined is forgotten."""
        self._note(agent.id, "agent_started", value=agent.life)
        self._routes = {key: route for key, route in self._routes.items() if key[0] != agent.id}

    def sent(self, agent: Agent, target: BrokerId, send: Send) -> None:
        """Counted at both ends; links here lose nothing."""
        message = send.message
        if message is not self._encoded[0]:
            self._encoded = (message, len(codec.encode(message)))
        second, kind = self._now_ms // 1_000, codec.kind_of(message)
        for key in (
            (second, agent.id, target, kind, "out"),
            (second, target, agent.id, kind, "in"),
        ):
            tally = self.control.setdefault(key, [0, 0])
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
                case ReachNeighbour(neighbour, conn):
                    kind = "link_down" if conn is None else "link_up"
                    self._note(agent.id, kind, neighbour=neighbour)
                case SetRoute(filter, route):
                    self._routed(agent, filter, route)
                case StepIn(broker):
                    self._note(agent.id, "takeover", subject=broker)
                case Notice("controller.changed", _, details):
                    self._note(agent.id, "controller_changed", subject=int(details["controller"]))
                case _:
                    pass

    def frame_sent(self, agent: Agent, target: BrokerId, passage: Passage, mask: int) -> None:
        """An arc that carries the publications in the frame."""
        for number, _, _ in publications_of(passage.frame):
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
        *,
        neighbour: int | None = None,
        filter: str | None = None,
        subject: int | None = None,
        value: int | None = None,
    ) -> None:
        if kind in ("link_up", "link_down"):
            self.restless_ms = self._now_ms
        self.changes.append(
            Change(self._now_ms, broker, kind, neighbour, filter, subject, None, value)
        )

"""Who serves a leaf with two hubs, carried out beside each agent as ``runtime.agent.serving`` does.

What was decided last is on the host's disk. Of a leaf, when that was touched last says until when
its hub served it.

Source: docs/hubs.md.
"""

from collections.abc import Callable
from dataclasses import dataclass

from federator.protocol.data.stamps import Stamps
from federator.protocol.data_plane import DataPlane
from federator.protocol.effects import Pause, Proceed
from federator.protocol.events import HubChosen
from federator.protocol.leaves.hub_choice import Choice, HubChoice
from federator.protocol.messages.serving import Served
from federator.protocol.types import BrokerId, Millis
from lab.sim.data import DataWorld, WakeUp
from lab.sim.network import Agent


@dataclass(slots=True)
class Note:
    """The file: what was decided, and when it was touched, by the host's wall clock."""

    served: Served | None = None
    touched_us: int = 0


@dataclass(eq=False, repr=False)
class Serving:
    """Of one agent. ``hubs``: where it hangs, if it is a leaf; ``leaf``: which hangs at it.

    Attributes:
        choice: Of a leaf with two hubs.
    """

    agent: Agent
    plane: DataPlane
    world: DataWorld
    note: Note
    stamps: Stamps
    hubs: tuple[BrokerId, ...]
    leaf: BrokerId | None
    return_after_ms: int
    can_write: Callable[[], bool]
    handle: Callable[[HubChosen], None]
    on_roaming: Callable[[], None]

    def __post_init__(self) -> None:
        self.choice: HubChoice | None = None
        self._known = self.note.served
        self._wake_up = WakeUp(self.agent, self.world, self._due_ms, self._on_time)
        if self.hubs:
            self.choice = HubChoice(
                self.hubs,
                self.world.now_of(self.agent),
                look_back_ms=self.agent.node.parameters.hello_timeout_ms,
                return_after_ms=self.return_after_ms,
                served_by=None if self._known is None else self._known.hub,
                served_since_us=0 if self._known is None else self._known.since_us,
                served_until_us=self.note.touched_us,
            )
            self.agent.node.serving.wait(self.hubs)
            self.plane.custody.hold(self.hubs)
        if self.leaf is not None and self._known is not None:
            self.agent.node.serving.resume(self.leaf, self._known)
            if self._known.hub != self.agent.id:
                self.plane.custody.pause(self.leaf)
            else:
                since_us = self._known.since_us
                self.plane.custody.proceed(self.leaf, since_us, by_its_clock=True, resumes=True)
            self._roams()

    def on_neighbour(self, neighbour: BrokerId, up: bool) -> None:
        """A link came up, or was lost."""
        if self.choice is not None:
            self._follow(self.choice.on_link(neighbour, up, self.world.now_of(self.agent)))

    def perform(self, effect: Pause | Proceed) -> None:
        """Exchange nothing with a broker, or exchange again, and remember it."""
        custody = self.plane.custody
        if isinstance(effect, Pause):
            custody.pause(effect.broker)
        else:
            custody.proceed(
                effect.broker,
                effect.since_us,
                by_its_clock=effect.by_its_clock,
                resumes=effect.resumes,
            )
        serving = self.agent.node.serving
        served = serving.served
        if self.leaf is not None:
            served = serving.of(self.leaf)
            self._roams()
        if served is not None and served != self._known and self.can_write():
            self._known = self.note.served = served
            self.note.touched_us = self.world.now_of(self.agent).us

    def _roams(self) -> None:
        if not self.stamps.stamping:
            self.stamps.stamping = True
            self.on_roaming()

    def _on_time(self) -> None:
        if self.choice is None:
            return
        now, due_ms = self.world.now_of(self.agent), self._due_ms()
        if due_ms is not None and now.ms >= due_ms:
            self._follow(self.choice.on_time(now))
            served = self.agent.node.serving.served
            if self.choice.is_served and self.note.served == served:
                self.note.touched_us = now.us
        self._wake_up.arm()

    def _follow(self, choice: Choice | None) -> None:
        assert self.choice is not None, "only a leaf with two hubs chooses"
        if choice is not None:
            self.world.fired["hub chosen"] += 1
            self.handle(HubChosen(choice.hub, self.choice.others, choice.since_us, choice.resumes))
        self._wake_up.arm()

    def _due_ms(self) -> Millis | None:
        return None if self.choice is None else self.choice.next_deadline_ms()

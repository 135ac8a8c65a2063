"""What a world can have besides agents, links and imagined clients: capabilities, and checks.

A part is called as things happen, after the world did its own; the base class does nothing.
"""

from collections.abc import Sequence

from federator.protocol.effects import Effect, Send
from federator.protocol.events import Event
from federator.protocol.forwarding.frames import Frame
from federator.protocol.messages.guide import Guide
from federator.protocol.topology.parameters import TopologyParameters
from federator.protocol.trust.guard import Seals
from federator.protocol.types import BrokerId, Epoch
from lab.sim.data import DataPath
from lab.sim.network import Agent
from lab.sim.story import Fault


class InvariantError(AssertionError):
    """The federation is in a state that must not exist; ``invariant`` is its stable name."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail


class Part:
    """A capability of a world, or an observer; may raise ``InvariantError``."""

    def topology_of(self, id: BrokerId) -> TopologyParameters | None:
        """By what an agent that starts arranges its links, if it does."""
        return None

    def data_path(self, agent: Agent, epoch: Epoch, seals: Seals | None) -> DataPath | None:
        """The data plane of an agent that starts, if not the world's."""
        return None

    def starting(self, agent: Agent) -> None:
        """A new incarnation of an agent runs, and knows nothing yet."""

    def started(self, agent: Agent) -> None:
        """An agent started, and dials its neighbours."""

    def stopped(self, agent: Agent, *, orderly: bool) -> None:
        """An agent runs no more."""

    def process_stopped(self, id: BrokerId) -> None:
        """The agents at broker ``id`` were stopped, again perhaps."""

    def forgot(self, id: BrokerId) -> None:
        """The disk of an agent was lost."""

    def broker_stopped(self, id: BrokerId, *, orderly: bool) -> None:
        """A broker that ran was stopped."""

    def broker_started(self, id: BrokerId) -> None:
        """A broker runs again."""

    def local_up(self, agent: Agent) -> None:
        """An agent is connected to its own broker."""

    def local_down(self, agent: Agent) -> None:
        """An agent lost its own broker."""

    def cover_changed(self, agent: Agent) -> None:
        """Others may want something else of an agent's broker."""

    def reach_changed(self, agent: Agent, neighbour: BrokerId) -> None:
        """An agent's link to a neighbour came up or went down."""

    def collects(self, agent: Agent, filters: frozenset[str]) -> None:
        """An agent says that its clients' wishes for ``filters`` only collect."""

    def kept(self, agent: Agent, number: int) -> None:
        """An agent keeps a publication of its clients at the edge."""

    def befall(self, fault: Fault) -> None:
        """One of the faults begins that only parts know."""

    def sent(self, agent: Agent, target: BrokerId, send: Send) -> None:
        """``agent`` publishes a control message on ``target``'s broker."""

    def handled(self, agent: Agent, event: Event, effects: Sequence[Effect]) -> None:
        """``agent`` handled ``event``, and its effects were performed."""

    def frame_sent(self, agent: Agent, target: BrokerId, frame: Frame) -> None:
        """``agent`` publishes this copy of a frame on another broker."""

    def delivered(self, agent: Agent, publication: int, topic: str) -> None:
        """``agent`` publishes what arrived in a frame on its own broker."""

    def guided(self, agent: Agent, guide: Guide) -> None:
        """``agent`` retains ``guide`` on its broker."""

    def perform(self, agent: Agent, effect: Effect) -> bool:
        """Carry out an effect that the world does not know; whether that was done."""
        return False

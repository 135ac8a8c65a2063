"""What a world can have besides agents, links and imagined clients: each capability is a part.

A part is called as things happen, after the world did its own; the base class does nothing.
"""

from federator.protocol.data.ports import Seals
from federator.protocol.effects import Effect
from federator.protocol.topology.parameters import TopologyParameters
from federator.protocol.types import BrokerId, Epoch
from lab.sim.data import DataPath
from lab.sim.network import Agent
from lab.sim.story import Fault


class Part:
    """A capability of a world."""

    def topology_of(self, id: BrokerId) -> TopologyParameters | None:
        """By what an agent that starts arranges its links, if it does."""
        return None

    def data_path(self, agent: Agent, epoch: Epoch, seals: Seals | None) -> DataPath | None:
        """The data plane of an agent that starts, if not the world's."""
        return None

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

    def perform(self, agent: Agent, effect: Effect) -> bool:
        """Carry out an effect that the world does not know; whether that was done."""
        return False

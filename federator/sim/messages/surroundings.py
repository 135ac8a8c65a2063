"""What an agent's process needs of the world around it."""

from collections.abc import Callable
from typing import Protocol

from federator.protocol.forwarding import Sends
from federator.protocol.frames import Frame
from federator.protocol.messages import RepairRequest
from federator.protocol.types import BrokerId
from federator.sim.agents import Agent
from federator.sim.messages.sessions import Message


class Surroundings(Protocol):
    """Implemented by the world; ``agent`` is always the process that speaks."""

    def interest_changed(
        self, agent: Agent, added: frozenset[str], removed: frozenset[str]
    ) -> None:
        """What the clients of its broker want, as discovery knows it."""

    def run(self, agent: Agent, call: Callable[..., None], *args: object) -> None:
        """Run ``call`` in the process: never when it is dead, later when it is paused."""

    def noticed(self, name: str) -> None:
        """It says something to its operator."""

    def take_plain(self, agent: Agent, message: Message) -> None:
        """A client published at QoS 0."""

    def send_own(self, agent: Agent, frame: Frame, sends: Sends) -> None:
        """Send copies of a frame of its own."""

    def send_repair(self, agent: Agent, neighbour: BrokerId, frame: Frame) -> bool:
        """Send a repair; whether it was taken."""

    def send_request(self, agent: Agent, neighbour: BrokerId, request: RepairRequest) -> None:
        """Ask a neighbour for what is missing."""

    def acknowledging(self, agent: Agent, number: int) -> None:
        """It tells its broker that it has a publication."""

    def delivering(self, agent: Agent, number: int, topic: str) -> None:
        """It publishes on its broker what came from another."""

    def too_old(self, numbers: list[int]) -> None:
        """Publications that its log has no room for any more."""

    def owed_expired(self, agent: Agent) -> None:
        """Routes changed because filters are no longer owed."""

    def doom(self, agent: Agent) -> None:
        """It is killed here, between two writes."""

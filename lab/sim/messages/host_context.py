"""What an agent's process needs of the world around it."""

from collections.abc import Callable
from typing import Protocol

from federator.protocol.effects import Notice
from federator.protocol.types import Now
from lab.sim.agents import Agent


class HostContext(Protocol):
    """Implemented by the world; ``agent`` is always the process that speaks."""

    def interest_changed(
        self, agent: Agent, added: frozenset[str], removed: frozenset[str]
    ) -> None:
        """What the clients of its broker want, as discovery knows it."""

    def run(self, agent: Agent, call: Callable[..., None], *args: object) -> None:
        """Run ``call`` in the process: never when it is dead, later when it is paused."""

    def now_of(self, agent: Agent) -> Now:
        """The clocks of its host."""

    def noticed(self, notice: Notice) -> None:
        """The agent says something to its operator."""

    def acknowledging(self, agent: Agent, number: int) -> None:
        """The agent tells its broker that it has a publication."""

    def delivering(self, agent: Agent, number: int, topic: str) -> None:
        """The agent publishes on its broker what came from another."""

    def too_old(self, numbers: list[int]) -> None:
        """Publications that its log has no room for any more."""

    def tend(self, agent: Agent) -> None:
        """A second has passed: its custody is bounded."""

    def doom(self, agent: Agent) -> None:
        """The agent is killed here, between two writes."""
